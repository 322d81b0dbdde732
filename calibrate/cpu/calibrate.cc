// Runs the calibrations of the cpu backend one after another, notes when each began, and judges
// from what the machine did meanwhile whether their figures are valid.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cpu/calibrate.h"

#include "exec/clock.h"
#include "exec/plan_hash.h"

#include <algorithm>
#include <string>
#include <utility>

namespace dovetail::calibrate {
namespace {

// From the 10th to the 90th percentile, as a share of the median.
double spread_of_step(const Spread& step) {
  const auto middle = static_cast<double>(step.median.count());
  return middle == 0 ? 0 : static_cast<double>((step.p90 - step.p10).count()) / middle;
}

// The steps of a calibration and when they began on this rank; the last one is its end.
using Beginnings = std::vector<std::pair<std::string, std::int64_t>>;

// What the reference load says about each step and about all of them.
void note_disturbances(Rig& rig, const Beginnings& began, Calibration& result) {
  for (std::size_t i = 0; i + 1 < began.size(); ++i) {
    const traces::CoreRecord record =
        rig.reference_load().record(began[i].second, began[i + 1].second);
    DisturbedStep step = {.name = began[i].first, .taken = 0};
    for (const traces::CoreRecord& of_rank : testbed::share_records(rig.exchange(), record)) {
      step.taken = std::max(step.taken, traces::share_taken(of_rank));
    }
    result.steps.push_back(std::move(step));
  }
  const std::int64_t begin_ns = began.front().second;
  const std::int64_t end_ns = began.back().second;
  result.disturbances =
      testbed::share_records(rig.exchange(), rig.reference_load().record(begin_ns, end_ns));
  for (const traces::CoreRecord& record : result.disturbances) {
    result.conditions.core_taken =
        std::max(result.conditions.core_taken.value_or(0), traces::share_taken(record));
  }
  result.reference_load_share = static_cast<double>(rig.reference_load().cost().count()) /
                                static_cast<double>(end_ns - begin_ns);
}

}  // namespace

Calibration calibrate(Rig& rig, const schedule::ScheduledProgram& plan, const Options& options) {
  Beginnings began;
  const auto tell = [&](std::string_view what) {
    began.emplace_back(what, exec::now_ns());
    if (options.progress && !what.empty() && rig.exchange().rank == Rank{0}) options.progress(what);
  };
  require_same_plan(rig.exchange(), plan);
  const exec::CpuTimes before = exec::read_cpu_times();
  Calibration result;
  tell("ops of the step");
  ComputeTimes computing = measure_ops(rig, plan, options.op_steps);
  result.skew = computing.skew();
  const double spread = spread_of_step(computing.slowest);
  result.ops = std::move(computing.ops);
  result.works = by_work(plan.program, result.ops);
  for (const schedule::ScheduledProgram& variant : options.variants) {
    tell("ops of " + variant.policy);
    result.variants.push_back(measure_ops(rig, variant, options.variant_steps).ops);
  }
  tell("unit kernel and copies");
  result.unit_kernel = measure_unit_kernel(rig, options.unit_kernel);
  result.copies = measure_copies(rig, options.arena);
  result.scales = measure_scales(rig, options.arena);
  tell("launching and waiting");
  result.host = measure_host(rig);
  tell("collectives by size");
  result.collectives = measure_collectives(rig, options.collectives);
  if (options.measures_halves) {
    tell("reduce-scatter and all-gather by size");
    CollectiveOptions half = options.halves;
    result.reduce_scatter = measure_collectives(rig, half);
    half.kind = schedule::Collective::AllGather;
    result.all_gather = measure_collectives(rig, half);
  }
  tell("contention");
  result.contention = measure_contention(rig, plan, options.contention);
  result.tiny_collectives = measure_contention(
      rig, plan, {.bytes = options.tiny, .compute_time = options.contention.compute_time});
  result.conditions = conditions_of_job(rig.exchange(), before, exec::read_cpu_times());
  tell("");
  note_disturbances(rig, began, result);
  result.conditions.spread = spread;
  std::vector<exec::SizedTime> queue;
  for (const CollectiveTimes& time : result.collectives) {
    queue.push_back({.bytes = time.bytes, .time = time.back_to_back});
  }
  result.conditions.fit_residual = line_residual(queue);
  result.verdict = validity_of(result.conditions);
  return result;
}

}  // namespace dovetail::calibrate
