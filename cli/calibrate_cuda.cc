// `dovetail calibrate --backend cuda`: runs the calibration on GPUs, turns its figures into a
// cluster file, and prints them.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate_cuda.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "calibrate/calibrate.h"
#include "calibrate/needs.h"
#include "calibrate/quality.h"
#include "cli/cuda_job.h"
#include "cli/document.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/show_facts.h"
#include "cli/text.h"
#include "exec/cuda/stand_in.h"

namespace dovetail::cli {
namespace {

using models::CollectivePoint;

double gb_per_s(Bytes bytes, Duration time) {
  return static_cast<double>(bytes.count()) /
         static_cast<double>(std::max<std::int64_t>(1, time.count()));
}

// Their ends say whether they were measured: the table of each is in the file.
void print_further(std::ostream& out, const models::Cluster& cluster) {
  if (cluster.collectives.size() < 2) return;
  using models::CollectiveSeries;
  const auto points = [](const CollectiveSeries& row) -> const auto& {
    return std::get<std::vector<CollectivePoint>>(row.times);
  };
  print_table(out,
              table_of<CollectiveSeries>(
                  {{{"", "also"}, &CollectiveSeries::collective},
                   {{"", "ranks"}, &CollectiveSeries::ranks},
                   {{"", "hosts", Unit::Own, {}, 0, Align::Right, "?"}, &CollectiveSeries::nodes},
                   {{"", "sizes"}, [=](const CollectiveSeries& row) { return points(row).size(); }},
                   {{"", "smallest us", Unit::Microseconds, {1}},
                    [=](const CollectiveSeries& row) { return points(row).front().isolated; }},
                   {{"", "largest us", Unit::Microseconds, {1}},
                    [=](const CollectiveSeries& row) { return points(row).back().isolated; }},
                   {{"", "GB/s", Unit::Own, {1}},
                    [=](const CollectiveSeries& row) {
                      return gb_per_s(points(row).back().bytes, points(row).back().isolated);
                    }}},
                  std::span(cluster.collectives).subspan(1)));
}

void print_summary(std::ostream& out, const models::Cluster& cluster, const std::string& path) {
  const auto& points =
      std::get<std::vector<models::CollectivePoint>>(cluster.collectives.front().times);
  out << path << ": " << counted(cluster.ranks, "rank") << ", "
      << counted(cluster.kernels.size(), "kernel") << ", " << cluster.notes.at("backend") << ", "
      << cluster.notes.at("issue") << '\n';
  const auto queued = [](const CollectivePoint& row) {
    return row.back_to_back.value_or(row.isolated);
  };
  print_table(out,
              table_of<CollectivePoint>(
                  {{{"", "all-reduce"}, &CollectivePoint::bytes},
                   {{"", "alone us", Unit::Microseconds, {1}}, &CollectivePoint::isolated},
                   {{"", "in a queue us", Unit::Microseconds, {1}}, queued},
                   {{"", "GB/s", Unit::Own, {1}},
                    [=](const CollectivePoint& row) { return gb_per_s(row.bytes, queued(row)); }}},
                  points));
  print_further(out, cluster);
  out << "contention: compute x" << fixed(cluster.contention.compute_slowdown, 3)
      << " beside a collective, collective x" << fixed(cluster.contention.collective_slowdown, 3)
      << " beside compute" << by_class(cluster.contention) << "\nhost: op "
      << fixed(to_us(cluster.host.run_op), 2) << " us, collective "
      << fixed(to_us(cluster.host.collective), 2) << " us, event "
      << fixed(to_us(cluster.host.event), 2) << " us, copy " << fixed(to_us(cluster.host.copy), 2)
      << " us, gap " << fixed(to_us(cluster.host.launch_gap), 2) << " us\n"
      << (cluster.quality->valid ? "calibration valid" : "calibration NOT valid");
  for (const std::string& reason : cluster.quality->why) out << "; " << reason;
  out << '\n';
}

bool stands_in(const CalibrateCudaOptions& options) { return !options.backend.stand_in.empty(); }

// One rank's part, on one GPU; rank 0 writes the file.
void calibrate_rank(const CalibrateCudaOptions& options, const CudaJob& cuda,
                    exec::launch::Session& session, std::ostream& out) {
  const DocumentOptions product = product_of(options.output, options.json);
  if (session.rank() == Rank{0}) require_writable({document_file(product)});
  exec::cuda::BackendOptions on_gpu = options_for(cuda, session);
  on_gpu.kept = cuda.module->keep_communicators(on_gpu);
  const std::int64_t ranks = stands_in(options) ? options.world.value_or(2) : session.size();
  const schedule::Program program = program_to_measure(options, ranks);
  std::deque<schedule::ScheduledProgram> plans;  // each must outlive its backend
  const calibrate::MakeBackend make = [&](const schedule::ScheduledProgram& plan) {
    plans.push_back(stands_in(options) ? exec::cuda::as_one_rank(plan) : plan);
    return cuda.module->make_backend(plans.back(), on_gpu);
  };
  calibrate::Options what;
  const bool replays = on_gpu.issue == exec::cuda::Issue::Graph;
  what.host = replays ? calibrate::HostWork::Replayed : calibrate::HostWork::PerCommand;
  if (replays) what.warmup = std::max(what.warmup, exec::cuda::kGraphWarmup);
  what.max_ctas = options.max_ctas;
  what.steps = options.op_steps;
  what.transfer_steps = options.op_steps;
  what.budget = time_of_flag("--budget", options.budget);
  what.further_budget = what.budget;
  what.progress = progress_of_calibration();
  calibrate::Wanted wanted = calibrate::wanted_for(program, options.policies);
  what.variants = std::move(wanted.variants);
  what.measures_further = wanted.further_collectives;
  models::Cluster cluster = calibrate::calibrate({.exchange = on_gpu.exchange,
                                                  .make_backend = make,
                                                  .options = what,
                                                  .ranks = program.world_size},
                                                 program)
                                .cluster;
  if (session.rank() != Rank{0}) return;
  describe(cluster, options, "cuda");
  note_execution(cluster, options);
  cluster.notes.merge(notes_of(cuda, on_gpu.device));
  for (const std::string& objection : objections_to(cuda, on_gpu.device)) {
    calibrate::object(cluster, objection);
  }
  put_document(
      product, [&cluster] { return models::cluster_to_json(cluster); }, out);
  if (!replaces_report(product)) print_summary(out, cluster, options.output);
}

}  // namespace

void refuse_cuda_only(const CalibrateCudaOptions& options) {
  const char* const given = options.max_ctas != 0 ? "--max-ctas" : options.world ? "--world" : "";
  if (*given != '\0') {
    throw InputError(std::string("calibrate: ") + given + " belongs to --backend cuda");
  }
}

void note_execution(models::Cluster& cluster, const CalibrateCudaOptions& options) {
  cluster.notes["issue"] = options.backend.issue;
  cluster.notes["f32_math"] = options.backend.f32_math;
  cluster.notes["buffers"] = options.backend.buffers;
  cluster.notes["max_ctas"] =
      options.max_ctas == 0 ? "the library's choice" : std::to_string(options.max_ctas);
  cluster.notes["stand_in"] =
      stands_in(options) ? options.backend.stand_in : "none: real collectives";
}

void calibrate_cuda(const CalibrateCudaOptions& options, std::ostream& out) {
  require_possible(options);
  refuse_pace_with_cuda(options.job);
  const std::optional<CudaJob> cuda = open_cuda(options.backend);
  DOVETAIL_CHECK(cuda.has_value()) << options.backend.backend;
  JobOptions job = options.job;
  job.cores = exec::launch::Cores::Any;
  if (stands_in(options)) job.ranks = 1;
  std::mutex report;  // ranks may be threads of this process
  run_job(job, [&](exec::launch::Session& session, exec::cpu::TransportKind) {
    std::ostringstream words;
    calibrate_rank(options, *cuda, session, words);
    const std::lock_guard lock(report);
    out << words.str();
  });
}

}  // namespace dovetail::cli
