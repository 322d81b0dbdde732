// From a GPU's calibration to a cluster file.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate_cuda.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <deque>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <variant>

#include "base/count.h"
#include "base/error.h"
#include "calibrate/needs.h"
#include "calibrate/passes.h"
#include "cli/cuda_job.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/text.h"
#include "exec/clock.h"
#include "exec/cuda/stand_in.h"
#include "exec/machine.h"
#include "models/workload.h"

namespace dovetail::cli {
namespace {

using calibrate::GpuCalibration;

// Below this the computing and the queue hardly met, and their ratio is noise.
constexpr std::int64_t kFewestOverlapped = 10;
// Of collectives: a table of fewer says little about what lies between its sizes.
constexpr std::size_t kFewestSizes = 8;
constexpr std::size_t kFewestFurther = 5;  // of the other kinds and groups
// A size left out is interpolated from its neighbours to within this, or the table is too coarse or
// too noisy.
constexpr double kMostLeftOut = 0.5;
// Slow-downs beyond this are no contention: the two kinds took turns, or the measurement failed.
constexpr double kMostSlowdown = 10;

models::KernelWork kernel_work(const schedule::Work& work) {
  if (const auto* memory = std::get_if<schedule::MemoryWork>(&work)) return *memory;
  const auto* gemm = std::get_if<schedule::GemmWork>(&work);
  DOVETAIL_CHECK(gemm != nullptr) << "work without a shape was measured";
  return *gemm;
}

models::CollectiveSeries series_of(const calibrate::SeriesTimes& measured) {
  std::vector<models::CollectivePoint> points;
  for (const auto& size : measured.times) {
    points.push_back({.bytes = size.bytes,
                      .isolated = size.isolated.median,
                      .back_to_back = size.back_to_back,
                      .p10 = size.isolated.p10,
                      .p90 = size.isolated.p90});
  }
  return {.collective = measured.kind,
          .ranks = measured.ranks,
          .nodes = measured.nodes,
          .times = std::move(points)};
}

std::string name_of(const calibrate::SeriesTimes& series) {
  return std::string(to_string(series.kind)) + " over " + std::to_string(series.ranks);
}

bool stands_in(const CalibrateCudaOptions& options) { return !options.backend.stand_in.empty(); }

// How far a size is from the line between its neighbours, at worst; relative. 0 for fewer than three.
double worst_left_out(const std::vector<calibrate::CollectiveTimes>& sizes) {
  double worst = 0;
  for (std::size_t i = 1; i + 1 < sizes.size(); ++i) {
    const auto bytes = [&](std::size_t at) { return static_cast<double>(sizes[at].bytes.count()); };
    const auto time = [&](std::size_t at) {
      return static_cast<double>(sizes[at].isolated.median.count());
    };
    const double place = (bytes(i) - bytes(i - 1)) / (bytes(i + 1) - bytes(i - 1));
    const double between = time(i - 1) + place * (time(i + 1) - time(i - 1));
    if (time(i) > 0) worst = std::max(worst, std::abs(between / time(i) - 1));
  }
  return worst;
}

models::Quality quality_of(const CalibrateCudaOptions& options, const GpuCalibration& measured) {
  models::Quality quality;
  if (stands_in(options)) {
    quality.why.emplace_back("collectives are one rank's sends to itself: no link was measured");
  }
  if (measured.contention.ops < kFewestOverlapped ||
      measured.contention.collectives < kFewestOverlapped) {
    quality.why.emplace_back("too little ran side by side to tell contention");
  }
  if (measured.collectives.size() < kFewestSizes) {
    quality.why.push_back("only " + counted(measured.collectives.size(), "size") +
                          " of collectives within the budget");
  }
  const double left_out = worst_left_out(measured.collectives);
  if (left_out > kMostLeftOut) {
    quality.why.push_back("a collective is " + fixed(100 * left_out, 0) +
                          " % off the line between its neighbours in size");
  }
  for (const calibrate::SeriesTimes& series : measured.further) {
    if (series.times.size() >= kFewestFurther) continue;
    quality.why.push_back("only " + counted(series.times.size(), "size") + " of " +
                          name_of(series) + " within the budget");
  }
  for (const double slowdown : {measured.contention.compute, measured.contention.collective}) {
    if (slowdown <= kMostSlowdown) continue;
    quality.why.push_back("a slow-down of x" + fixed(slowdown, 1) + " is no contention");
  }
  quality.valid = quality.why.empty();
  quality.figures["left_out"] = left_out;
  quality.figures["contention_ops"] = static_cast<double>(measured.contention.ops);
  quality.figures["contention_collectives"] = static_cast<double>(measured.contention.collectives);
  return quality;
}

std::string date_of_today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

// Their ends say whether they were measured: the table of each is in the file.
void print_further(std::ostream& out, const models::Cluster& cluster) {
  if (cluster.collectives.size() < 2) return;
  TextTable table({"also", "ranks", "hosts", "sizes", "smallest us", "largest us", "GB/s"});
  for (std::size_t i = 1; i < cluster.collectives.size(); ++i) {
    const models::CollectiveSeries& series = cluster.collectives[i];
    const auto& points = std::get<std::vector<models::CollectivePoint>>(series.times);
    const models::CollectivePoint& last = points.back();
    const double rate = static_cast<double>(last.bytes.count()) /
                        static_cast<double>(std::max<std::int64_t>(1, last.isolated.count()));
    table.add({std::string(to_string(series.collective)), std::to_string(series.ranks),
               std::to_string(series.nodes), std::to_string(points.size()),
               fixed(to_us(points.front().isolated), 1), fixed(to_us(last.isolated), 1),
               fixed(rate, 1)});
  }
  table.print(out);
}

void print_summary(std::ostream& out, const models::Cluster& cluster, const std::string& path) {
  const auto& points =
      std::get<std::vector<models::CollectivePoint>>(cluster.collectives.front().times);
  out << path << ": " << counted(cluster.ranks, "rank") << ", "
      << counted(cluster.kernels.size(), "kernel") << ", " << cluster.notes.at("backend") << ", "
      << cluster.notes.at("issue") << '\n';
  TextTable table({"all-reduce", "alone us", "in a queue us", "GB/s"});
  for (const models::CollectivePoint& point : points) {
    const Duration queued = point.back_to_back.value_or(point.isolated);
    const double rate = static_cast<double>(point.bytes.count()) /
                        static_cast<double>(std::max<std::int64_t>(1, queued.count()));
    table.add({to_string(point.bytes), fixed(to_us(point.isolated), 1), fixed(to_us(queued), 1),
               fixed(rate, 1)});
  }
  table.print(out);
  print_further(out, cluster);
  out << "contention: compute x" << fixed(cluster.contention.compute_slowdown, 3)
      << " beside a collective, collective x" << fixed(cluster.contention.collective_slowdown, 3)
      << " beside compute\nhost: op " << fixed(to_us(cluster.host.run_op), 2) << " us, collective "
      << fixed(to_us(cluster.host.collective), 2) << " us, event "
      << fixed(to_us(cluster.host.event), 2) << " us, copy " << fixed(to_us(cluster.host.copy), 2)
      << " us, latency " << fixed(to_us(cluster.host.launch_latency), 2) << " us, gap "
      << fixed(to_us(cluster.host.launch_gap), 2) << " us\n"
      << (cluster.quality->valid ? "calibration valid" : "calibration NOT valid");
  for (const std::string& reason : cluster.quality->why) out << "; " << reason;
  out << '\n';
}

// A step whose own ops communicate cannot be run without what they bring.
std::vector<schedule::ScheduledProgram> pass_variants_of(const CalibrateCudaOptions& options,
                                                         const schedule::Program& program) {
  for (const schedule::Op& op : program.ops) {
    if (std::holds_alternative<schedule::CollectiveWork>(op.work)) return {};
  }
  std::vector<schedule::ScheduledProgram> variants = calibrate::pass_variants(program);
  if (options.policies.empty()) return variants;
  return calibrate::variants_for(calibrate::needs_of(program, options.policies),
                                 std::move(variants));
}

// One rank's part, on one GPU; rank 0 writes the file.
void calibrate_rank(const CalibrateCudaOptions& options, const CudaJob& cuda,
                    exec::launch::Session& session, std::ostream& out) {
  const DocumentOptions product = product_of(options.output, options.json);
  if (session.rank() == Rank{0}) require_writable({document_file(product)});
  exec::cuda::BackendOptions on_gpu = options_for(cuda, session);
  on_gpu.kept = cuda.module->keep_communicators(on_gpu);
  const std::int64_t ranks = stands_in(options) ? options.world.value_or(2) : session.size();
  const schedule::Program program =
      models::load_workload(options.workload, ranks, options.data_dir).program;
  std::deque<schedule::ScheduledProgram> plans;  // each must outlive its backend
  const calibrate::MakeBackend make = [&](const schedule::ScheduledProgram& plan) {
    plans.push_back(stands_in(options) ? exec::cuda::as_one_rank(plan) : plan);
    return cuda.module->make_backend(plans.back(), on_gpu);
  };
  calibrate::CalibrateOptions what;
  what.issue = on_gpu.issue;
  what.max_ctas = options.max_ctas;
  what.steps = options.op_steps;
  what.budget = time_of_flag("--budget", options.budget);
  what.further_budget = what.budget;
  what.variants = pass_variants_of(options, program);
  what.measures_further = options.policies.empty() ||
                          calibrate::needs_of(program, options.policies).further_collectives;
  const exec::DeviceJobStart before;
  const std::int64_t begin_ns = exec::now_ns();
  const GpuCalibration measured = calibrate::calibrate_gpu(on_gpu.exchange, make, program, what);
  const exec::Conditions conditions =
      exec::conditions_of_device_job(on_gpu.exchange, before, Duration(exec::now_ns() - begin_ns));
  if (session.rank() != Rank{0}) return;
  models::Cluster cluster = cluster_of(options, program, measured);
  cluster.origin = "dovetail " DOVETAIL_VERSION " calibrate on " + exec::this_machine().text();
  cluster.date = date_of_today();
  cluster.notes.merge(notes_of(cuda, on_gpu.device));
  cluster.quality->outside_cpu = conditions.outside_cpu;
  cluster.quality->steal = conditions.steal;
  std::vector<std::string> objections = exec::validity_of(conditions).reasons;
  for (std::string& objection : objections_to(cuda, on_gpu.device)) {
    objections.push_back(std::move(objection));
  }
  for (const std::string& objection : objections) {
    if (std::ranges::find(cluster.quality->why, objection) != cluster.quality->why.end()) continue;
    cluster.quality->why.push_back(objection);
    cluster.quality->valid = false;
  }
  put_document(
      product, [&cluster] { return models::cluster_to_json(cluster); }, out);
  if (!replaces_report(product)) print_summary(out, cluster, options.output);
}

}  // namespace

models::Cluster cluster_of(const CalibrateCudaOptions& options, const schedule::Program& program,
                           const GpuCalibration& measured) {
  models::Cluster cluster;
  cluster.name = options.name;
  cluster.ranks = program.world_size;
  cluster.backend = models::BackendKind::Cuda;
  cluster.notes["workload"] = options.workload;
  cluster.notes["backend"] = "cuda";
  cluster.notes["issue"] = options.backend.issue;
  cluster.notes["f32_math"] = options.backend.f32_math;
  cluster.notes["max_ctas"] =
      options.max_ctas == 0 ? "the library's choice" : std::to_string(options.max_ctas);
  cluster.notes["buffers"] = options.backend.buffers;
  if (!options.policies.empty())
    cluster.notes["measured for"] = calibrate::in_one_line(options.policies);
  cluster.notes["stand_in"] =
      stands_in(options) ? options.backend.stand_in : "none: real collectives";
  cluster.collectives.push_back(series_of({.kind = schedule::Collective::AllReduce,
                                           .ranks = program.world_size,
                                           .nodes = measured.nodes,
                                           .times = measured.collectives}));
  for (const calibrate::SeriesTimes& series : measured.further) {
    cluster.collectives.push_back(series_of(series));
  }
  for (const auto& timed : calibrate::by_work(program, measured.ops)) {
    cluster.kernels.push_back({.dtype = timed.dtype,
                               .work = kernel_work(timed.work),
                               .time = timed.time.median,
                               .p10 = timed.time.p10,
                               .p90 = timed.time.p90,
                               .op = {}});
  }
  cluster.copy =
      models::CopyModel{.fixed = measured.copies.fixed, .ns_per_byte = measured.copies.ns_per_byte};
  cluster.host = {.kind = models::HostModel::Kind::Async,
                  .run_op = measured.host.run_op,
                  .collective = measured.host.collective,
                  .event = measured.host.event,
                  .copy = measured.host.copy,
                  .launch_latency = measured.host.launch_latency,
                  .launch_gap = measured.host.launch_gap};
  cluster.contention = {.compute_slowdown = std::max(1.0, measured.contention.compute),
                        .collective_slowdown = std::max(1.0, measured.contention.collective),
                        .collective_cpu = {}};
  cluster.passes = calibrate::passes_of(cluster, pass_variants_of(options, program),
                                        measured.variants, measured.scales);
  cluster.skew = measured.skew;
  cluster.quality = quality_of(options, measured);
  return cluster;
}

void refuse_cuda_only(const CalibrateCudaOptions& options) {
  const char* const given = options.max_ctas != 0 ? "--max-ctas" : options.world ? "--world" : "";
  if (*given != '\0') {
    throw InputError(std::string("calibrate: ") + given + " belongs to --backend cuda");
  }
}

void calibrate_cuda(const CalibrateCudaOptions& options, std::ostream& out) {
  const DocumentOptions product = product_of(options.output, options.json);
  if (!replaces_report(product) && product.output.empty()) {
    throw InputError("calibrate: name the file to write with -o, or --json for standard output");
  }
  require_distinct({document_file(product)}, {workload_file(options.workload, options.data_dir)});
  calibrate::require_policies(options.policies);
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
