// Measures how much computing and communicating slow each other down: steps of backward ops with
// nothing beside them, then beside a queue of collectives that outlasts them, then alone again, so
// that a drift of the machine shows.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cpu/contention.h"

#include "base/error.h"
#include "calibrate/cpu/collectives.h"
#include "calibrate/cpu/compute.h"
#include "exec/clock.h"
#include "exec/compute_only.h"
#include "exec/run.h"
#include "schedule/transfers.h"
#include "testbed/op_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <variant>

namespace dovetail::calibrate {
namespace {

constexpr double kQueueOverCompute = 1.6;  // the queue must outlast the computing, slowed down too
constexpr std::int64_t kFewestCollectives = 4;
constexpr std::int64_t kMostCollectives = 20'000;
constexpr std::size_t kFewestCalm = 8;  // collectives that met no preemption
constexpr std::size_t kCalmShare = 4;   // of ops a fourth must have met none
constexpr std::int32_t kFewestSteps = 3;
constexpr std::int32_t kMostSteps = 500;
// Steps alone, each time: a second of them, within these bounds.
constexpr double kAloneNs = 1e9;
constexpr std::int32_t kFewestAlone = 4;
constexpr std::int32_t kMostAlone = 10;

schedule::ScheduledProgram backward_only(const schedule::ScheduledProgram& plan) {
  schedule::ScheduledProgram backward = exec::without_communication(plan);
  for (schedule::RankProgram& role : backward.roles) {
    std::erase_if(role.commands, [&](const schedule::Command& command) {
      const OpId op = *schedule::op_run_by(command);
      return plan.program.op(op).phase != schedule::Phase::Backward;
    });
    if (role.commands.empty()) {
      throw InputError("contention is measured on backward ops; " + plan.program.name +
                       " has none");
    }
  }
  schedule::link_transfers(backward);
  return backward;
}

// What each op takes with nothing beside it, and their sum.
struct Baseline {
  std::map<CommandId, double> op_ns;
  double step_ns = 0;
};

Baseline baseline_of(std::span<const exec::Timing> timings) {
  std::map<CommandId, std::vector<std::int64_t>> samples;
  for (const exec::Timing& timing : timings) {
    samples[timing.command].push_back(timing.end_ns - timing.start_ns);
  }
  Baseline baseline;
  for (const auto& [command, of_command] : samples) {
    const auto median = static_cast<double>(spread_of(of_command).median.count());
    baseline.op_ns[command] = median;
    baseline.step_ns += median;
  }
  return baseline;
}

// One number from all ranks: the largest.
double largest(Rig& rig, double mine) {
  const std::vector<std::int64_t> sent = {std::llround(mine)};
  std::int64_t most = 0;
  for (const std::vector<std::int64_t>& of_rank : share(rig.exchange(), sent)) {
    most = std::max(most, of_rank.at(0));
  }
  return static_cast<double>(most);
}

std::vector<RankContention> share_results(Rig& rig, const RankContention& mine) {
  constexpr double kMillion = 1e6;
  const std::vector<std::int64_t> numbers = {
      std::llround(mine.compute_slowdown * kMillion),
      std::llround(mine.collective_slowdown * kMillion), mine.cpu_per_collective.count(),
      std::llround(mine.comm_thread_share * kMillion), mine.collectives};
  std::vector<RankContention> all;
  for (const std::vector<std::int64_t>& of_rank : share(rig.exchange(), numbers)) {
    all.push_back({.compute_slowdown = static_cast<double>(of_rank.at(0)) / kMillion,
                   .collective_slowdown = static_cast<double>(of_rank.at(1)) / kMillion,
                   .cpu_per_collective = Duration(of_rank.at(2)),
                   .comm_thread_share = static_cast<double>(of_rank.at(3)) / kMillion,
                   .collectives = of_rank.at(4)});
  }
  return all;
}

// Those that met no preemption of any rank, nor what was caught up after it. Records begin at a barrier, so
// their times mean about the same on all ranks.
std::vector<exec::Timing> calm_ones(const std::vector<exec::Timing>& timings,
                                    const traces::CoreRecord& restless, std::int64_t begin_ns) {
  std::vector<exec::Timing> calm;
  for (const exec::Timing& timing : timings) {
    const Duration start(timing.start_ns - begin_ns);
    const Duration end(timing.end_ns - begin_ns);
    if (traces::taken_within(restless, start, end) == Duration{}) calm.push_back(timing);
  }
  return calm;
}

// Collectives without the time in which a preemption of any rank stopped them. Without a known shield they
// stay as they are.
std::vector<exec::Timing> without_silences(Rig& rig, std::vector<exec::Timing> queue,
                                           const traces::Disturbances& all, std::int64_t begin_ns) {
  if (rig.shield() == Duration{}) return queue;
  for (const traces::CoreRecord& of_rank : all) {
    const traces::CoreRecord silent = traces::silences(of_rank, rig.shield());
    for (exec::Timing& timing : queue) {
      const Duration start(timing.start_ns - begin_ns);
      const Duration end(timing.end_ns - begin_ns);
      timing.end_ns -= traces::taken_within(silent, start, end).count();
    }
  }
  return queue;
}

}  // namespace

RankContention compare(const Beside& timings) {
  const auto& [alone, ops, queue, lone_collective] = timings;
  const Baseline baseline = baseline_of(alone);
  const std::int64_t queue_start = queue.front().start_ns;
  const std::int64_t queue_end = queue.back().end_ns;
  double with = 0;
  double without = 0;
  std::int64_t first = queue_end;
  std::int64_t last = queue_start;
  for (const exec::Timing& op : ops) {
    if (op.start_ns < queue_start || op.end_ns > queue_end) continue;
    with += static_cast<double>(op.end_ns - op.start_ns);
    without += baseline.op_ns.at(op.command);
    first = std::min(first, op.start_ns);
    last = std::max(last, op.end_ns);
  }
  RankContention result;
  double collective_ns = 0;
  for (const exec::Timing& collective : queue) {
    if (collective.start_ns < first || collective.end_ns > last) continue;
    ++result.collectives;
    collective_ns += static_cast<double>(collective.end_ns - collective.start_ns);
  }
  if (result.collectives == 0 || without == 0) return result;
  const auto count = static_cast<double>(result.collectives);
  result.compute_slowdown = with / without;
  result.cpu_per_collective = Duration(std::llround((with - without) / count));
  const auto lone = static_cast<double>(lone_collective.count());
  if (lone > 0) result.collective_slowdown = collective_ns / count / lone;
  return result;
}

std::vector<RankContention> measure_contention(Rig& rig, const schedule::ScheduledProgram& plan,
                                               const ContentionOptions& options) {
  const schedule::ScheduledProgram backward = backward_only(plan);
  exec::cpu::CpuBackend backend(backward, rig.compute_ports());
  const Rank rank = rig.exchange().rank;
  rig.exchange().barrier();
  const std::int64_t begin_ns = exec::now_ns();
  std::vector<exec::Timing> lone_timings;
  const auto run_alone = [&](std::int32_t warmup, std::int32_t count) {
    if (count == 0) return;
    const exec::RankResult alone = run(backward, rank, backend, {.warmup = warmup, .steps = count});
    lone_timings.insert(lone_timings.end(), alone.timings.begin(), alone.timings.end());
  };
  run_alone(1, kFewestAlone);
  const auto alone = static_cast<std::int32_t>(std::clamp<double>(
      std::ceil(kAloneNs / std::max(1.0, largest(rig, baseline_of(lone_timings).step_ns))),
      kFewestAlone, kMostAlone));
  run_alone(0, alone - kFewestAlone);
  const Duration lone = measure_queue(rig, schedule::Collective::AllReduce, options.bytes,
                                      kFewestCollectives * 2, kFewestCollectives);

  // Both counts follow from numbers that all ranks share.
  const double step_ns = std::max(1.0, largest(rig, baseline_of(lone_timings).step_ns));
  const auto wanted = static_cast<double>(options.compute_time.count());
  const auto steps = static_cast<std::int32_t>(
      std::clamp<double>(std::ceil(wanted / step_ns), kFewestSteps, kMostSteps));
  const double per_collective = std::max(1.0, static_cast<double>(lone.count()));
  const auto count = static_cast<std::int64_t>(
      std::clamp<double>(std::ceil(kQueueOverCompute * step_ns * steps / per_collective),
                         kFewestCollectives, kMostCollectives));

  const exec::cpu::CollectiveCall call = {.kind = schedule::Collective::AllReduce,
                                          .op = schedule::ReduceOp::Sum,
                                          .data = rig.buffer(options.bytes),
                                          .shard = {},
                                          .label = "calibration"};
  rig.exchange().barrier();
  const std::int64_t cpu_before = rig.comm().cpu_ns();
  rig.enqueue(call, count);
  const exec::RankResult beside = run(backward, rank, backend, {.warmup = 1, .steps = steps});
  const std::vector<exec::Timing> queue = rig.drain();
  const std::int64_t comm_cpu = rig.comm().cpu_ns() - cpu_before;

  // Before and after, so that a machine which drifts meanwhile shows up as little as may be.
  rig.exchange().barrier();
  run_alone(1, alone);
  const traces::CoreRecord record = rig.reference_load().record(begin_ns, exec::now_ns());
  const auto there = [&](const std::vector<exec::Timing>& timings) {
    return testbed::without_preemptions(timings, record, begin_ns);
  };
  const traces::Disturbances all = testbed::share_records(rig.exchange(), record);
  const traces::CoreRecord restless = traces::restless(all);
  std::vector<exec::Timing> ops = calm_ones(beside.timings, restless, begin_ns);
  std::vector<exec::Timing> collectives = calm_ones(queue, restless, begin_ns);
  // Where too few are left, all of them, without what preemptions took.
  if (ops.size() < beside.timings.size() / kCalmShare || collectives.size() < kFewestCalm) {
    ops = there(beside.timings);
    collectives = without_silences(rig, queue, all, begin_ns);
  }
  RankContention mine = compare(
      {.alone = there(lone_timings), .ops = ops, .queue = collectives, .lone_collective = lone});
  const auto busy = static_cast<double>(queue.back().end_ns - queue.front().start_ns);
  mine.comm_thread_share = static_cast<double>(comm_cpu) / busy;
  return share_results(rig, mine);
}

}  // namespace dovetail::calibrate
