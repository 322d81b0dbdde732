// Averages over ranks what a file holds once, turns samples into points of tables, and judges the whole.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cluster.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <variant>

#include "base/count.h"
#include "base/decimal.h"
#include "base/error.h"
#include "calibrate/needs.h"
#include "calibrate/passes.h"

namespace dovetail::calibrate {
namespace {

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

models::CollectiveSeries series_of(const SeriesTimes& measured) {
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

std::string name_of(const SeriesTimes& series) {
  return std::string(to_string(series.kind)) + " over " + std::to_string(series.ranks);
}

// All-reduce, and its halves where at least two of their sizes were measured.
std::vector<models::CollectiveSeries> series_of(const Calibration& measured, std::int64_t ranks) {
  using schedule::Collective;
  std::vector<models::CollectiveSeries> all = {
      series_of({.kind = Collective::AllReduce, .ranks = ranks, .times = measured.collectives})};
  if (measured.reduce_scatter.size() >= 2) {
    all.push_back(series_of(
        {.kind = Collective::ReduceScatter, .ranks = ranks, .times = measured.reduce_scatter}));
  }
  if (measured.all_gather.size() >= 2) {
    all.push_back(
        series_of({.kind = Collective::AllGather, .ranks = ranks, .times = measured.all_gather}));
  }
  return all;
}

// How far a size is from the line between its neighbours, at worst; relative. 0 for fewer than three.
double worst_left_out(const std::vector<CollectiveTimes>& sizes) {
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

models::Quality quality_of(const DeviceFacts& device, const GpuCalibration& measured) {
  models::Quality quality;
  if (!device.stand_in.empty()) {
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
  for (const SeriesTimes& series : measured.further) {
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

// What both kinds of machine hold alike.
models::Cluster cluster_of(const ClusterFacts& facts, const schedule::Program& program,
                           models::BackendKind backend, const CopyTime& copies) {
  models::Cluster cluster;
  cluster.name = facts.name;
  cluster.ranks = program.world_size;
  cluster.backend = backend;
  cluster.notes["workload"] = facts.workload;
  cluster.notes["backend"] = facts.backend;
  if (!facts.policies.empty()) cluster.notes["measured for"] = in_one_line(facts.policies);
  cluster.copy = models::CopyModel{.fixed = copies.fixed, .ns_per_byte = copies.ns_per_byte};
  return cluster;
}

models::MeasuredKernel kernel_of(schedule::DType dtype, const schedule::Work& work,
                                 const Spread& time, std::string op) {
  return {.dtype = dtype,
          .work = kernel_work(work),
          .time = time.median,
          .p10 = time.p10,
          .p90 = time.p90,
          .op = std::move(op)};
}

}  // namespace

models::Cluster cluster_of(const ClusterFacts& facts, const CpuMeasurements& what) {
  const schedule::Program& program = what.program;
  const Calibration& measured = what.measured;
  models::Cluster cluster = cluster_of(facts, program, models::BackendKind::Cpu, measured.copies);
  cluster.collectives = series_of(measured, program.world_size);
  for (const OpTime& timed : measured.ops) {
    const schedule::Op& op = program.op(timed.op);
    cluster.kernels.push_back(kernel_of(op.dtype, op.work, timed.time, op.name));
  }
  cluster.unit_kernel = what.unit;
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
  cluster.passes = passes_of(cluster, wanted_for(program, facts.policies).variants,
                             measured.variants, measured.scales);
  cluster.network_shield = what.network_shield;
  return cluster;
}

models::Cluster cluster_of(const ClusterFacts& facts, const DeviceFacts& device,
                           const schedule::Program& program, const GpuCalibration& measured) {
  models::Cluster cluster = cluster_of(facts, program, models::BackendKind::Cuda, measured.copies);
  cluster.notes["issue"] = device.issue;
  cluster.notes["f32_math"] = device.f32_math;
  cluster.notes["max_ctas"] =
      device.max_ctas == 0 ? "the library's choice" : std::to_string(device.max_ctas);
  cluster.notes["buffers"] = device.buffers;
  cluster.notes["stand_in"] = device.stand_in.empty() ? "none: real collectives" : device.stand_in;
  cluster.collectives.push_back(series_of({.kind = schedule::Collective::AllReduce,
                                           .ranks = program.world_size,
                                           .nodes = measured.nodes,
                                           .times = measured.collectives}));
  for (const SeriesTimes& series : measured.further) {
    cluster.collectives.push_back(series_of(series));
  }
  for (const WorkTime& timed : by_work(program, measured.ops)) {
    cluster.kernels.push_back(kernel_of(timed.dtype, timed.work, timed.time, {}));
  }
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
  cluster.passes = passes_of(cluster, wanted_for(program, facts.policies).variants,
                             measured.variants, measured.scales);
  cluster.skew = measured.skew;
  cluster.quality = quality_of(device, measured);
  return cluster;
}

void object(models::Cluster& cluster, const std::string& objection) {
  models::Quality& quality = *cluster.quality;
  quality.valid = false;
  if (std::ranges::find(quality.why, objection) == quality.why.end()) {
    quality.why.push_back(objection);
  }
}

}  // namespace dovetail::calibrate
