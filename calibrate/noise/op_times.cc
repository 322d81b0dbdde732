// Takes the time of preemptions out of the times of ops, op by op, without letting any op fall
// below half of what it takes at its quickest.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/noise/op_times.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace dovetail::testbed {
namespace {

constexpr double kLowQuantile = 0.1;

// Half of the 10th percentile of each op.
std::map<OpId, Duration> least_times(const std::map<CommandId, OpId>& op_of,
                                     std::span<const exec::Timing> timings) {
  std::map<OpId, std::vector<std::int64_t>> samples;
  for (const exec::Timing& timing : timings) {
    const auto op = op_of.find(timing.command);
    if (op != op_of.end()) samples[op->second].push_back(timing.end_ns - timing.start_ns);
  }
  std::map<OpId, Duration> least;
  for (auto& [op, times] : samples) {
    std::sort(times.begin(), times.end());
    const auto at = static_cast<std::size_t>(kLowQuantile * static_cast<double>(times.size()));
    least[op] = Duration(times[at] / 2);
  }
  return least;
}

}  // namespace

std::vector<StepOps> op_times(const schedule::ScheduledProgram& plan, Rank rank,
                              std::span<const exec::Timing> timings,
                              const traces::CoreRecord& record, std::int64_t begin_ns) {
  std::map<CommandId, OpId> op_of;
  for (const schedule::Command& command : exec::role_of(plan, rank).commands) {
    if (const std::optional<OpId> op = schedule::op_run_by(command)) op_of[command.id] = *op;
  }
  const std::map<OpId, Duration> least = least_times(op_of, timings);
  std::map<std::int32_t, StepOps> steps;
  Duration lacking{};
  for (const exec::Timing& timing : timings) {
    const auto op = op_of.find(timing.command);
    if (op == op_of.end()) continue;
    StepOps& step = steps[timing.step];
    if (step.empty()) lacking = {};
    const Duration start(timing.start_ns - begin_ns);
    const Duration end(timing.end_ns - begin_ns);
    const Duration there = end - start - traces::taken_within(record, start, end) - lacking;
    const Duration time = std::max(there, least.at(op->second));
    lacking = time - there;
    step[op->second] += time;
  }
  std::vector<StepOps> all;
  for (auto& [number, step] : steps) all.push_back(std::move(step));
  return all;
}

std::vector<exec::Timing> without_preemptions(std::vector<exec::Timing> timings,
                                              const traces::CoreRecord& record,
                                              std::int64_t begin_ns) {
  for (exec::Timing& timing : timings) {
    timing.end_ns -= traces::taken_within(record, Duration(timing.start_ns - begin_ns),
                                          Duration(timing.end_ns - begin_ns))
                         .count();
  }
  return timings;
}

std::vector<std::vector<StepOps>> share_op_times(const exec::Exchange& exchange,
                                                 const std::vector<StepOps>& mine) {
  std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(mine.size())};
  for (const StepOps& step : mine) {
    numbers.push_back(static_cast<std::int64_t>(step.size()));
    for (const auto& [op, time] : step) {
      numbers.push_back(op.value);
      numbers.push_back(time.count());
    }
  }
  std::vector<std::vector<StepOps>> all;
  for (const std::vector<std::int64_t>& of_rank : share(exchange, numbers)) {
    std::vector<StepOps> steps(static_cast<std::size_t>(of_rank.at(0)));
    std::size_t next = 1;
    for (StepOps& step : steps) {
      const std::int64_t ops = of_rank.at(next++);
      for (std::int64_t i = 0; i < ops; ++i, next += 2) {
        step[OpId{static_cast<std::int32_t>(of_rank.at(next))}] = Duration(of_rank.at(next + 1));
      }
    }
    all.push_back(std::move(steps));
  }
  return all;
}

}  // namespace dovetail::testbed
