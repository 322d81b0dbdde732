// Makes one Trace of the timings of all ranks: which timings become spans, when a collective's
// last rank arrived, and what of a wait was a stall.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/measured_trace.h"

#include "base/error.h"
#include "schedule/describe.h"
#include "schedule/visit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace dovetail::exec {
namespace {

using schedule::Command;
using traces::CommandInfo;
using traces::SpanKind;

// One collective of one step, as all its ranks know it: what travels, and the first rank of their instance
// of the group.
using Meeting = std::tuple<std::int32_t, TransferId, Rank>;

class Assembly {
 public:
  Assembly(const schedule::ScheduledProgram& plan, std::span<const std::vector<Timing>> by_rank)
      : plan_(plan), by_rank_(by_rank), origin_ns_(origin_ns(by_rank)) {
    for (const schedule::RankProgram& role : plan.roles) {
      for (const Command& command : role.commands) {
        commands_[command.id] = &command;
        if (command.launch) launches_.insert(*command.launch);
      }
    }
    find_meetings();
  }

  [[nodiscard]] std::vector<traces::Span> spans() const {
    std::vector<traces::Span> spans;
    for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
      const std::vector<Timing>& timings = by_rank_[rank];
      for (std::size_t i = 0; i < timings.size(); ++i) {
        if (!shows(timings[i])) continue;
        traces::Span one = span(timings[i], Rank{static_cast<std::int32_t>(rank)});
        if (launches_.contains(timings[i].command)) {
          one.end = launch_end(timings, i);
          if (one.end == one.start) continue;  // a virtual clock may launch in no time
        }
        spans.push_back(one);
      }
    }
    std::stable_sort(spans.begin(), spans.end(), [](const traces::Span& a, const traces::Span& b) {
      return std::tie(a.rank, a.stream, a.start, a.end, a.command) <
             std::tie(b.rank, b.stream, b.start, b.end, b.command);
    });
    return spans;
  }

 private:
  [[nodiscard]] const Command& command(const Timing& timing) const {
    const auto found = commands_.find(timing.command);
    DOVETAIL_CHECK(found != commands_.end()) << "timing of unknown command " << timing.command;
    return *found->second;
  }
  // Where the rank meets others with this timing's command, on the stream that carries it.
  [[nodiscard]] std::optional<Meeting> meeting(const Timing& timing, Rank rank) const {
    const Command& which = command(timing);
    if (timing.stream != which.stream || !which.transfer) return std::nullopt;
    const GroupId group = plan_.transfer(which).group;
    const std::span<const Rank> ranks = plan_.program.group(group).instance_of(rank);
    if (ranks.empty()) return std::nullopt;
    return Meeting{timing.step, *which.transfer, ranks[0]};
  }

  void find_meetings() {
    std::map<Meeting, std::int64_t> last_arrival;
    for (std::size_t pass = 0; pass < 2; ++pass) {
      for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
        for (const Timing& timing : by_rank_[rank]) {
          const auto which = meeting(timing, Rank{static_cast<std::int32_t>(rank)});
          if (!which) continue;
          if (pass == 1) {
            last_arrival_[&timing] = last_arrival.at(*which);
            continue;
          }
          std::int64_t& latest = last_arrival.emplace(*which, timing.start_ns).first->second;
          latest = std::max(latest, timing.start_ns);
        }
      }
    }
  }

  [[nodiscard]] bool shows(const Timing& timing) const {
    const Command& which = command(timing);
    if (timing.stream != which.stream) return false;  // while it was enqueued
    return schedule::visit(
        which.action, [](const schedule::RunOp&) { return true; },
        [](const schedule::Communicate&) { return true; },
        [](const schedule::Copy&) { return true; },
        [&](const schedule::RecordEvent&) { return launches_.contains(which.id); },
        [&](const schedule::WaitEvent&) {
          // An idle communication stream always waits; only stalls of computing tell something.
          return timing.stream == schedule::kComputeStream && timing.end_ns > timing.start_ns;
        },
        [](const schedule::Scale&) { return true; },
        [](const schedule::Release&) { return false; });
  }

  // A launch lasts until the last command that it enqueues.
  [[nodiscard]] Instant launch_end(const std::vector<Timing>& timings, std::size_t record) const {
    std::size_t last = record;
    for (std::size_t i = record + 1; i < timings.size(); ++i) {
      if (timings[i].stream != schedule::kComputeStream) continue;
      if (command(timings[i]).stream == schedule::kComputeStream) break;
      last = i;
    }
    return instant(timings[last].end_ns);
  }

  [[nodiscard]] Instant instant(std::int64_t ns) const {
    return Instant(Duration(ns - origin_ns_));
  }
  [[nodiscard]] traces::Span span(const Timing& timing, Rank rank) const {
    traces::Span span;
    span.command = timing.command;
    span.rank = rank;
    span.stream = timing.stream;
    span.step = timing.step;
    span.start = instant(timing.start_ns);
    span.end = instant(timing.end_ns);
    const auto arrival = last_arrival_.find(&timing);
    // An arrival is noted a moment after the stream began, so on a preempted rank the last one may
    // seem to lie after the end.
    if (arrival != last_arrival_.end()) {
      span.transfer_start = std::min(instant(arrival->second), span.end);
    }
    return span;
  }

  const schedule::ScheduledProgram& plan_;
  std::span<const std::vector<Timing>> by_rank_;
  std::int64_t origin_ns_;
  std::map<CommandId, const Command*> commands_;
  std::set<CommandId> launches_;
  std::map<const Timing*, std::int64_t> last_arrival_;  // of collectives
};

}  // namespace

std::int64_t origin_ns(std::span<const std::vector<Timing>> by_rank) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<Timing>& timings : by_rank) {
    for (const Timing& timing : timings) {
      if (timing.step == 0) origin = std::min(origin, timing.start_ns);
    }
  }
  return origin;
}

std::vector<Duration> start_skews(std::span<const std::vector<Timing>> by_rank) {
  std::vector<std::map<std::int32_t, std::int64_t>> begins(by_rank.size());  // by step
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> ends;        // first and last begin
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const Timing& timing : by_rank[rank]) {
      if (timing.stream != schedule::kComputeStream)
        continue;  // others may stand at a wait already
      const auto known = begins[rank].emplace(timing.step, timing.start_ns).first;
      known->second = std::min(known->second, timing.start_ns);
    }
    for (const auto& [step, begin] : begins[rank]) {
      auto& [first, last] = ends.emplace(step, std::pair(begin, begin)).first->second;
      first = std::min(first, begin);
      last = std::max(last, begin);
    }
  }
  std::vector<Duration> skews;
  for (const auto& [step, both] : ends) skews.emplace_back(both.second - both.first);
  return skews;
}

traces::Trace measured_trace(const schedule::ScheduledProgram& plan,
                             std::span<const std::vector<Timing>> by_rank,
                             const traces::Provenance& provenance) {
  traces::Trace trace;
  trace.provenance = provenance;
  trace.provenance.origin = traces::Origin::Measured;
  trace.provenance.policy = plan.policy;
  trace.provenance.workload = plan.program.name;
  trace.world_size = plan.program.world_size;
  trace.steps = 0;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    trace.ranks.push_back(Rank{static_cast<std::int32_t>(rank)});
    for (const Timing& timing : by_rank[rank]) trace.steps = std::max(trace.steps, timing.step + 1);
  }
  for (const schedule::Stream& stream : plan.streams) {
    trace.streams.push_back({stream.id, stream.name});
  }
  trace.commands = schedule::describe_commands(plan);
  trace.spans = Assembly(plan, by_rank).spans();
  const auto launches = [](const CommandInfo& info) { return info.kind == SpanKind::Enqueue; };
  const bool launched =
      std::any_of(trace.spans.begin(), trace.spans.end(),
                  [&](const traces::Span& span) { return launches(trace.command(span.command)); });
  if (!launched) std::erase_if(trace.commands, launches);
  return trace;
}

}  // namespace dovetail::exec
