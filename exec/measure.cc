// Runs plans on all ranks and gathers the results: timings go to rank 0 by its clock, counts of
// wrong values to everybody, so that all ranks end with the same exit code.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/measure.h"

#include "base/error.h"
#include "exec/clock.h"
#include "exec/clock_offset.h"
#include "exec/device_work.h"
#include "exec/measured_trace.h"
#include "exec/plan_hash.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace dovetail::exec {
namespace {

// Ranks run the same executable on the same kind of machine, so a Timing may travel as it is.
static_assert(std::is_trivially_copyable_v<Timing>);

std::vector<std::vector<Timing>> gather_timings(const Exchange& exchange,
                                                const std::vector<Timing>& mine) {
  std::string bytes(mine.size() * sizeof(Timing), '\0');
  if (!mine.empty()) std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<std::vector<Timing>> by_rank;
  for (const std::string& from : exchange.gather(bytes)) {
    std::vector<Timing> timings(from.size() / sizeof(Timing));
    if (!timings.empty()) std::memcpy(timings.data(), from.data(), timings.size() * sizeof(Timing));
    by_rank.push_back(std::move(timings));
  }
  return by_rank;
}

std::vector<std::vector<DeviceWork>> gather_device_work(const Exchange& exchange,
                                                        const std::vector<DeviceWork>& mine) {
  std::vector<std::vector<DeviceWork>> by_rank;
  for (const std::string& from : exchange.gather(encode(mine))) {
    by_rank.push_back(decode_device_work(from));
  }
  return by_rank;
}

CheckResult sum_over_ranks(const Exchange& exchange, const CheckResult& mine) {
  CheckResult sum;
  for (const std::vector<std::int64_t>& counts :
       share(exchange, std::vector{mine.checked, mine.wrong})) {
    sum.checked += counts.at(0);
    sum.wrong += counts.at(1);
  }
  std::string first;
  for (const std::string& text : exchange.gather(mine.first_wrong)) {
    if (first.empty()) first = text;
  }
  sum.first_wrong = exchange.broadcast(first);
  return sum;
}

// Adds a round to what was measured before it. Steps go on counting.
void append(const RankResult& round, std::int32_t steps_before, RankResult& all) {
  for (Timing timing : round.timings) {
    timing.step += steps_before;
    all.timings.push_back(timing);
  }
  for (DeviceWork work : round.device_work) {
    work.step += steps_before;
    all.device_work.push_back(std::move(work));
  }
  add(round.check, all.check);
}

// What this rank measured, as rank 0's clock would have read it.
std::vector<Timing> on_clock_of_rank_0(std::vector<Timing> timings, const ClockOffset& before,
                                       const ClockOffset& after) {
  for (Timing& timing : timings) {
    const std::int64_t offset = offset_at(before, after, timing.start_ns);
    timing.start_ns += offset;
    timing.end_ns += offset;
  }
  return timings;
}
std::vector<DeviceWork> on_clock_of_rank_0(std::vector<DeviceWork> works, const ClockOffset& before,
                                           const ClockOffset& after) {
  for (DeviceWork& work : works) {
    const std::int64_t offset = offset_at(before, after, work.start_ns);
    work.start_ns += offset;
    work.end_ns += offset;
  }
  return works;
}

// Of the rank whose clock is known worst; on every rank.
std::int64_t worst_error(const Exchange& exchange, const ClockOffset& before,
                         const ClockOffset& after) {
  std::int64_t worst = 0;
  for (const auto& of_rank :
       share(exchange, std::array{std::max(before.error_ns, after.error_ns)})) {
    worst = std::max(worst, of_rank.front());
  }
  return worst;
}

// How well several ranks began together: what their skew adds to a step.
void note_start(std::span<const std::vector<Timing>> by_rank, traces::Trace& trace) {
  std::vector<Duration> skews = start_skews(by_rank);
  if (by_rank.size() < 2 || skews.empty()) return;
  std::sort(skews.begin(), skews.end());
  trace.provenance.notes["start of steps"] =
      "ranks began within " + to_string(skews[skews.size() / 2]) + " of each other (median), " +
      to_string(skews.back()) + " at most";
}

std::int32_t steps_in(const RankResult& result) {
  std::int32_t steps = 0;
  for (const Timing& timing : result.timings) steps = std::max(steps, timing.step + 1);
  return steps;
}

// The window of each step, as traces::step_times knows it: a communication stream may stand at its next
// wait long before the step begins.
std::vector<Duration> step_times(const Exchange& exchange, const schedule::ScheduledProgram& plan,
                                 const RankResult& mine, std::int64_t offset_ns) {
  std::set<CommandId> waits;
  for (const schedule::Command& command : role_of(plan, exchange.rank).commands) {
    if (command.stream != schedule::kComputeStream &&
        std::holds_alternative<schedule::WaitEvent>(command.action)) {
      waits.insert(command.id);
    }
  }
  const auto steps = static_cast<std::size_t>(steps_in(mine));
  std::vector<std::int64_t> windows(2 * steps, std::numeric_limits<std::int64_t>::min());
  for (const Timing& timing : mine.timings) {
    if (timing.stream != schedule::kComputeStream && waits.contains(timing.command)) continue;
    // Both ends as maxima, so that ranks join alike.
    std::int64_t& start = windows[2 * static_cast<std::size_t>(timing.step)];
    std::int64_t& end = windows[2 * static_cast<std::size_t>(timing.step) + 1];
    start = std::max(start, -(timing.start_ns + offset_ns));
    end = std::max(end, timing.end_ns + offset_ns);
  }
  for (const std::vector<std::int64_t>& of_rank : share(exchange, windows)) {
    for (std::size_t i = 0; i < windows.size(); ++i) windows[i] = std::max(windows[i], of_rank[i]);
  }
  std::vector<Duration> times;
  for (std::size_t i = 0; i < steps; ++i) times.emplace_back(windows[2 * i] + windows[2 * i + 1]);
  return times;
}

}  // namespace

Measured measure(const Exchange& exchange, std::span<const Lane> lanes, const RunOptions& options,
                 const traces::Provenance& provenance, const GoOn& go_on) {
  for (const Lane& lane : lanes) require_same_plan(exchange, *lane.plan);
  Measured measured;
  measured.own.resize(lanes.size());
  std::vector<std::vector<Duration>> known(lanes.size());
  const ClockOffset before = clock_offset(exchange);
  RunOptions one = options;
  one.rounds = 1;
  for (bool more = true; more; one.executed += executed_by(lanes.size(), one)) {
    exchange.barrier();
    RoundTime time = {.begin_ns = now_ns(), .end_ns = 0};
    const std::vector<RankResult> round = run_interleaved(lanes, exchange.rank, one);
    time.end_ns = now_ns();
    measured.rounds.push_back(time);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      append(round[i], steps_in(measured.own[i]), measured.own[i]);
      if (!go_on) continue;
      const std::vector<Duration> times =
          step_times(exchange, *lanes[i].plan, round[i], before.offset_ns);
      known[i].insert(known[i].end(), times.begin(), times.end());
    }
    const auto done = static_cast<std::int32_t>(measured.rounds.size());
    more = go_on ? rank_0_says(exchange, go_on(known) ? 1 : 0) == 1 : done < options.rounds;
  }
  const ClockOffset after = clock_offset(exchange);
  measured.clock_error = Duration(worst_error(exchange, before, after));
  const std::vector<RankResult>& mine = measured.own;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const std::vector<std::vector<Timing>> by_rank =
        gather_timings(exchange, on_clock_of_rank_0(mine[i].timings, before, after));
    const std::vector<std::vector<DeviceWork>> works =
        gather_device_work(exchange, on_clock_of_rank_0(mine[i].device_work, before, after));
    if (exchange.rank == Rank{0}) {
      measured.traces.push_back(measured_trace(*lanes[i].plan, by_rank, provenance));
      note_start(by_rank, measured.traces.back());
      if (measured.clock_error > Duration{}) {
        measured.traces.back().provenance.notes["clocks of the hosts"] =
            "aligned by round trips, to " + to_string(measured.clock_error);
      }
      add_device_work(*lanes[i].plan, works, origin_ns(by_rank), measured.traces.back());
    }
    measured.checks.push_back(sum_over_ranks(exchange, mine[i].check));
  }
  return measured;
}

}  // namespace dovetail::exec
