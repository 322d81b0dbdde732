// Records are taken from the host's chain of calls: those made since the call before from the pause, and what is left of them
// from the call itself.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/recording_cost.h"

#include "recordings/diagnose/workload.h"
#include "sim/edits.h"

#include <algorithm>
#include <cstddef>

namespace dovetail::diagnose {
namespace {

using Range = RecordingCost::Range;

constexpr Range kOperatorAnywhere = {std::chrono::nanoseconds(300), std::chrono::microseconds(4)};
constexpr Range kCall = {std::chrono::microseconds(1), std::chrono::microseconds(4)};
constexpr double kMostOfOwn = 3;
constexpr std::size_t kFewestPairs = 20;

Duration times(Duration time, double count) {
  return from_ns(static_cast<double>(time.count()) * count);
}

std::vector<char> working_threads(const RankTrace& rank) {
  std::vector<char> works(rank.trace.threads.size(), 0);
  for (const HostCall& call : rank.line.calls) {
    if (!call.is_aside) works[static_cast<std::size_t>(call.thread)] = 1;
  }
  return works;
}

bool is_operator(const RecordedEvent& event) {
  return event.kind == EventKind::Operator || event.kind == EventKind::Annotation;
}

bool is_in_a_step(const RankTimeline& line, Instant at) {
  const auto after = std::ranges::upper_bound(line.steps, at, {}, &TracedStep::start);
  return after != line.steps.begin() && at < std::prev(after)->end;
}

// Own times of operators that call one other, in which nothing else is recorded.
std::vector<Duration> own_of_pairs(const RankTrace& rank) {
  struct Inside {
    std::int32_t count = 0;
    std::int64_t ns = 0;
    bool is_operator = false;
  };
  const auto& events = rank.trace.events;
  std::vector<Inside> inside(events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::int32_t parent = rank.line.parent[i];
    if (parent == kNone) continue;
    Inside& of_parent = inside[static_cast<std::size_t>(parent)];
    ++of_parent.count;
    of_parent.ns += events[i].duration_ns;
    of_parent.is_operator = events[i].kind == EventKind::Operator;
  }
  std::vector<Duration> own;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const bool is_pair =
        events[i].kind == EventKind::Operator && inside[i].count == 1 && inside[i].is_operator;
    if (is_pair) own.emplace_back(std::max<std::int64_t>(0, events[i].duration_ns - inside[i].ns));
  }
  return own;
}

bool has_whole_microseconds(const RankTrace& rank) {
  return std::ranges::all_of(rank.trace.events, [](const RecordedEvent& event) {
    return event.start_ns % 1000 == 0 && event.duration_ns % 1000 == 0;
  });
}

Range of_operator(const RankTrace& rank) {
  std::vector<Duration> own = own_of_pairs(rank);
  if (own.size() < kFewestPairs || has_whole_microseconds(rank)) return kOperatorAnywhere;
  const auto tenth = own.begin() + std::ssize(own) / 10;
  std::ranges::nth_element(own, tenth);
  return {*tenth, times(*tenth, kMostOfOwn)};
}

// How many operators began on the threads that launch work between each call and the one before it.
std::vector<std::int64_t> operators_before(const RankTrace& rank) {
  const std::vector<char> works = working_threads(rank);
  std::vector<std::int64_t> counts(rank.line.calls.size(), 0);
  for (const RecordedEvent& event : rank.trace.events) {
    if (!is_operator(event) || works[static_cast<std::size_t>(event.thread)] == 0) continue;
    const Instant at = rank.line.instant(event.start_ns);
    const auto next = std::ranges::lower_bound(rank.line.calls, at, {}, &HostCall::start);
    if (next != rank.line.calls.end())
      ++counts[static_cast<std::size_t>(next - rank.line.calls.begin())];
  }
  return counts;
}

}  // namespace

Range RecordingCost::a_step() const {
  return {std::min(most, times(of_operator.low, operators) + times(of_call.low, calls)),
          std::min(most, times(of_operator.high, operators) + times(of_call.high, calls))};
}

RecordingCost recording_cost(const RankTrace& rank, Duration most) {
  RecordingCost cost;
  cost.of_operator = of_operator(rank);
  cost.of_call = kCall;
  cost.most = most;
  const std::vector<char> works = working_threads(rank);
  for (const RecordedEvent& event : rank.trace.events) {
    const bool is_call = event.kind == EventKind::RuntimeCall;
    if (!is_call && !is_operator(event)) continue;
    if (works[static_cast<std::size_t>(event.thread)] == 0) continue;
    if (!is_in_a_step(rank.line, rank.line.instant(event.start_ns))) continue;
    ++(is_call ? cost.calls : cost.operators);
  }
  const auto steps = static_cast<double>(std::max<std::size_t>(1, rank.line.steps.size()));
  cost.operators /= steps;
  cost.calls /= steps;
  return cost;
}

std::vector<Duration> steps_without_recording(const RankTrace& rank, const RankReplay& replay,
                                              RecordTimes each) {
  RecordedGraph changed = replay.recorded;
  step::StepGraph& graph = changed.graph;
  step::Patch patch(graph);
  const std::vector<std::int64_t> before = operators_before(rank);
  for (step::NodeId node = 0; node < graph.size(); ++node) {
    const Origin& origin = changed.origin_of(node);
    if (origin.kind != Origin::Kind::Call) continue;
    std::int64_t cost = each.of_operator.count() * before[static_cast<std::size_t>(origin.index)] +
                        each.of_call.count();
    const auto [begin, end] = graph.edges_of(node);
    for (std::size_t edge = begin; edge < end; ++edge) {
      if (graph.edge_kind[edge] != step::EdgeKind::Order) continue;
      const std::int64_t taken = std::clamp<std::int64_t>(graph.lag_of(edge), 0, cost);
      patch.set_lag(node, edge, graph.lag_of(edge) - taken);
      cost -= taken;
    }
    const std::int64_t time = graph.work[static_cast<std::size_t>(node)].ns();
    patch.set_time(node, std::max<std::int64_t>(0, time - cost));
  }
  std::vector<Duration> steps;
  for (const TimedStep& step : replayed_steps(changed, rank.line, played(graph))) {
    steps.push_back(step.step);
  }
  return steps;
}

}  // namespace dovetail::diagnose
