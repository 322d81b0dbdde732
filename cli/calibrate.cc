// From a calibration to a cluster file.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "calibrate/cpu/calibrate.h"
#include "calibrate/cpu/network_shield.h"
#include "calibrate/needs.h"
#include "calibrate/passes.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "exec/cpu/kernels.h"
#include "exec/machine.h"
#include "lower/lower.h"
#include "models/cluster.h"
#include "models/stand_in.h"
#include "models/workload.h"
#include "policies/policies.h"

namespace dovetail::cli {
namespace {

using calibrate::Calibration;

models::KernelWork kernel_work(const schedule::Work& work) {
  if (const auto* memory = std::get_if<schedule::MemoryWork>(&work)) return *memory;
  const auto* gemm = std::get_if<schedule::GemmWork>(&work);
  DOVETAIL_CHECK(gemm != nullptr) << "timed work cannot be measured";
  return *gemm;
}

// The mean over ranks, since a cluster file holds one contention for all of them.
models::Contention contention_of(const Calibration& measured) {
  models::Contention result{.compute_slowdown = 0, .collective_slowdown = 0, .collective_cpu = {}};
  const auto ranks = static_cast<double>(measured.contention.size());
  for (const auto& rank : measured.contention) {
    result.compute_slowdown += rank.compute_slowdown / ranks;
    result.collective_slowdown += rank.collective_slowdown / ranks;
  }
  Duration cpu{};
  for (const auto& rank : measured.tiny_collectives) cpu += rank.cpu_per_collective;
  result.collective_cpu =
      std::max(Duration{}, cpu / static_cast<std::int64_t>(measured.tiny_collectives.size()));
  result.compute_slowdown = std::max(1.0, result.compute_slowdown);
  result.collective_slowdown = std::max(1.0, result.collective_slowdown);
  return result;
}

models::CollectiveSeries series_of(schedule::Collective kind, std::int64_t ranks,
                                   std::span<const calibrate::CollectiveTimes> sizes) {
  std::vector<models::CollectivePoint> points;
  for (const auto& size : sizes) {
    points.push_back({.bytes = size.bytes,
                      .isolated = size.isolated.median,
                      .back_to_back = size.back_to_back,
                      .p10 = size.isolated.p10,
                      .p90 = size.isolated.p90});
  }
  return {.collective = kind, .ranks = ranks, .nodes = 1, .times = std::move(points)};
}

// All-reduce, and its halves where at least two of their sizes were measured.
std::vector<models::CollectiveSeries> series_of(const Calibration& measured, std::int64_t ranks) {
  using schedule::Collective;
  std::vector<models::CollectiveSeries> all = {
      series_of(Collective::AllReduce, ranks, measured.collectives)};
  if (measured.reduce_scatter.size() >= 2) {
    all.push_back(series_of(Collective::ReduceScatter, ranks, measured.reduce_scatter));
  }
  if (measured.all_gather.size() >= 2) {
    all.push_back(series_of(Collective::AllGather, ranks, measured.all_gather));
  }
  return all;
}

models::Quality quality_of(const Calibration& measured) {
  models::Quality quality;
  quality.valid = measured.verdict.valid;
  quality.why = measured.verdict.reasons;
  quality.outside_cpu = measured.conditions.outside_cpu;
  quality.steal = measured.conditions.steal;
  quality.fit_residual = measured.conditions.fit_residual;
  if (measured.conditions.spread) quality.figures["step_spread"] = *measured.conditions.spread;
  double share = 0;
  for (const auto& rank : measured.contention) share = std::max(share, rank.comm_thread_share);
  quality.figures["comm_thread_cpu_share"] = share;
  quality.figures["core_taken_share"] = measured.conditions.core_taken.value_or(0);
  double work_us = 0;
  for (const auto& record : measured.disturbances) {
    work_us = std::max(work_us, to_us(record.quickest));
  }
  quality.figures["known_work_us"] = work_us;
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

models::Cluster cluster_of(const CalibrateOptions& options, const schedule::Program& program,
                           const models::UnitKernel& unit, const Calibration& measured,
                           std::string_view backend) {
  const std::int64_t ranks = program.world_size;
  models::Cluster cluster;
  cluster.name = options.name;
  cluster.origin = "dovetail " DOVETAIL_VERSION " calibrate on " + exec::this_machine().text();
  cluster.date = date_of_today();
  cluster.notes["backend"] = std::string(backend);
  cluster.notes["workload"] = options.workload;
  cluster.ranks = ranks;
  cluster.backend = models::BackendKind::Cpu;
  cluster.collectives = series_of(measured, ranks);
  for (const auto& timed : measured.ops) {
    const schedule::Op& op = program.op(timed.op);
    cluster.kernels.push_back({.dtype = op.dtype,
                               .work = kernel_work(op.work),
                               .time = timed.time.median,
                               .p10 = timed.time.p10,
                               .p90 = timed.time.p90,
                               .op = op.name});
  }
  cluster.unit_kernel = unit;
  cluster.copy =
      models::CopyModel{.fixed = measured.copies.fixed, .ns_per_byte = measured.copies.ns_per_byte};
  cluster.skew = measured.skew;
  cluster.host = {.kind = models::HostModel::Kind::Inline,
                  .run_op = {},
                  .collective = measured.host.launch,
                  .event = measured.host.wake_up,
                  .copy = {},
                  .launch_latency = {},
                  .launch_gap = {}};
  cluster.contention = contention_of(measured);
  cluster.quality = quality_of(measured);
  return cluster;
}

// The workload as this machine can execute it: timed work replaced by repetitions of the unit
// kernel.
schedule::Program executable(const CalibrateOptions& options, const models::UnitKernel& unit,
                             std::int64_t ranks) {
  models::Workload workload = models::load_workload(options.workload, ranks, options.data_dir);
  models::Cluster cluster;
  cluster.name = options.name;
  cluster.unit_kernel = unit;
  return models::stand_in(workload.program, cluster).program;
}

// Which steps of the calibration were disturbed, and by how much.
void print_disturbances(std::ostream& out, const Calibration& measured) {
  constexpr double kDisturbed = 0.01;
  for (std::size_t rank = 0; rank < measured.disturbances.size(); ++rank) {
    const traces::CoreRecord& record = measured.disturbances[rank];
    out << "yardstick, rank " << rank << ", core " << record.core << ": "
        << fixed(100 * traces::share_taken(record), 1) << " % of the core taken\n";
  }
  std::size_t disturbed = 0;
  std::string names;
  for (const auto& step : measured.steps) {
    if (step.taken < kDisturbed) continue;
    ++disturbed;
    names += (names.empty() ? ": " : ", ") + step.name + " " + fixed(100 * step.taken, 1) + " %";
  }
  out << disturbed << " of " << measured.steps.size() << " steps of the calibration disturbed"
      << names << '\n';
}

std::string rate_of(double ns_per_byte) {
  return ns_per_byte > 0 ? fixed(1 / ns_per_byte, 2) + " GB/s" : "free";
}

void print_summary(std::ostream& out, const models::Cluster& cluster, const Calibration& measured,
                   const std::string& path) {
  out << path << ": " << counted(cluster.ranks, "rank") << ", "
      << counted(cluster.kernels.size(), "kernel") << ", " << cluster.notes.at("backend")
      << ", link: " << cluster.notes.at("link") << '\n';
  const auto& points =
      std::get<std::vector<models::CollectivePoint>>(cluster.collectives.front().times);
  TextTable table({"all-reduce", "alone us", "p10", "p90", "in a queue us"});
  for (const models::CollectivePoint& point : points) {
    table.add({to_string(point.bytes), fixed(to_us(point.isolated), 1),
               fixed(to_us(point.p10.value_or(point.isolated)), 1),
               fixed(to_us(point.p90.value_or(point.isolated)), 1),
               fixed(to_us(point.back_to_back.value_or(point.isolated)), 1)});
  }
  table.print(out);
  out << "contention: compute x" << fixed(cluster.contention.compute_slowdown, 3)
      << " beside a collective, collective x" << fixed(cluster.contention.collective_slowdown, 3)
      << " beside compute, " << fixed(to_us(cluster.contention.collective_cpu), 1)
      << " us of processor time per collective\n"
      << "host: launch " << fixed(to_us(cluster.host.collective), 1) << " us, wake-up "
      << fixed(to_us(cluster.host.event), 1) << " us; copies " << rate_of(cluster.copy->ns_per_byte)
      << "; unit kernel " << fixed(to_us(cluster.unit_kernel->time), 2) << " us\n"
      << "slowest rank of a step: " << fixed(100 * cluster.skew, 1) << " % above the medians\n"
      << "passes, by their traffic:";
  for (const auto& [kind, pass] : cluster.passes) {
    out << ' ' << to_string(kind) << ' ' << rate_of(pass.ns_per_byte);
  }
  out << '\n';
  print_disturbances(out, measured);
  out << (cluster.quality->valid ? "calibration valid" : "calibration NOT valid");
  for (const std::string& reason : cluster.quality->why) out << "; " << reason;
  out << '\n';
}

}  // namespace

void calibrate(const CalibrateOptions& options, std::ostream& out) {
  const DocumentOptions product = product_of(options.output, options.json);
  if (!replaces_report(product) && product.output.empty()) {
    throw InputError("calibrate: name the file to write with -o, or --json for standard output");
  }
  require_distinct({document_file(product)}, {workload_file(options.workload, options.data_dir)});
  calibrate::require_policies(options.policies);
  const Duration budget = time_of_flag("--budget", options.budget);
  const std::optional<BytesPerSecond> rate = pace_of(options.job);
  const bool progress = shows_progress();
  std::mutex report;
  run_job(options.job, [&](exec::launch::Session& session, exec::cpu::TransportKind transport) {
    if (session.rank() == Rank{0}) require_writable({document_file(product)});
    calibrate::Rig rig(exec::cpu::exchange_of(session),
                       exec::cpu::ports_of(session, transport, rate));
    const models::UnitKernel unit{.dtype = schedule::DType::F32,
                                  .gemm = exec::cpu::kUnitGemm,
                                  .time = calibrate::measure_unit_kernel(rig).median};
    const schedule::Program program = executable(options, unit, session.size());
    const schedule::Schedule schedule =
        schedule::make_schedule(program, schedule::parse_policy("no-overlap"));
    const schedule::ScheduledProgram plan = schedule::lower(program, schedule).program;
    calibrate::Options what;
    what.op_steps = options.op_steps;
    what.variants = calibrate::pass_variants(program);
    if (!options.policies.empty()) {
      const calibrate::CalibrationNeeds needs = calibrate::needs_of(program, options.policies);
      what.variants = calibrate::variants_for(needs, std::move(what.variants));
      what.measures_halves = needs.further_collectives;
    }
    what.collectives.budget = budget;
    if (progress) {
      what.progress = [begin = std::chrono::steady_clock::now()](std::string_view text) {
        const Duration past(std::chrono::steady_clock::now() - begin);
        std::fprintf(stderr, "calibrate: %s so far: %.*s\n", about(past).c_str(),
                     static_cast<int>(text.size()), text.data());
      };
    }
    const Duration shield = calibrate::measure_shield(rig);
    rig.know_shield(shield);
    const Calibration measured = calibrate::calibrate(rig, plan, what);
    if (session.rank() != Rank{0}) return;
    const std::lock_guard lock(report);
    if (measured.collectives.size() < 2) {
      throw InputError("calibrate: in --budget " + options.budget + " only " +
                       counted(measured.collectives.size(), "size") +
                       " of all-reduce could be measured; two are needed");
    }
    models::Cluster cluster =
        cluster_of(options, program, unit, measured, "cpu/" + std::string(to_string(transport)));
    cluster.passes =
        calibrate::passes_of(cluster, what.variants, measured.variants, measured.scales);
    cluster.network_shield = shield;
    cluster.notes["link"] = link_of(session, options.job);
    if (!options.policies.empty())
      cluster.notes["measured for"] = calibrate::in_one_line(options.policies);
    if (const std::string objection = link_objection(session, options.job); !objection.empty()) {
      cluster.quality->valid = false;
      cluster.quality->why.push_back(objection);
    }
    put_document(
        product, [&cluster] { return models::cluster_to_json(cluster); }, out);
    if (!replaces_report(product)) print_summary(out, cluster, measured, options.output);
  });
}

}  // namespace dovetail::cli
