// Unions of intervals: each part of the step is what its events cover without the parts before it.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/host_time.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "traces/intervals.h"

namespace dovetail::diagnose {
namespace {

using traces::Interval;
using Intervals = std::vector<Interval>;

constexpr Duration kPauseOfBackward = std::chrono::microseconds(500);

Intervals common(const Intervals& a, const Intervals& b) {
  return traces::without(a, traces::without(a, b));
}

class Accounts {
 public:
  explicit Accounts(const RankTrace& rank)
      : rank_(rank),
        line_(rank.line),
        own_time_(rank.trace.names.size()),
        annotated_(rank.trace.names.size()) {}

  HostTime account() {
    sort_events();
    const auto steps = static_cast<std::int64_t>(line_.steps.size());
    for (const TracedStep& step : line_.steps) add(step);
    for (HostPartTime& part : result_.parts) {
      for (Duration* time : {&part.time, &part.in_calls, &part.in_operators, &part.python}) {
        *time /= std::max<std::int64_t>(1, steps);
      }
      part.launches /= static_cast<double>(std::max<std::int64_t>(1, steps));
    }
    result_.step /= std::max<std::int64_t>(1, steps);
    name_most(own_time_, result_.operators, steps);
    name_most(annotated_, result_.annotations, steps);
    return std::move(result_);
  }

 private:
  struct Sum {
    Duration time{};
    std::int64_t count = 0;
  };

  [[nodiscard]] bool is_host(const RecordedEvent& event) const {
    return event.kind == EventKind::Operator || event.kind == EventKind::Annotation ||
           event.kind == EventKind::RuntimeCall;
  }
  [[nodiscard]] Interval interval_of(const RecordedEvent& event) const {
    return {line_.instant(event.start_ns), line_.instant(event.end_ns())};
  }
  [[nodiscard]] bool is_in_a_step(Instant at) const {
    const auto after = std::ranges::upper_bound(line_.steps, at, {}, &TracedStep::start);
    return after != line_.steps.begin() && at < std::prev(after)->end;
  }

  // Of the threads that launch work, or compute where there is no GPU.
  void sort_events() {
    std::vector<char> works(rank_.trace.threads.size(), 0);
    for (const HostCall& call : line_.calls) {
      if (!call.is_aside) works[static_cast<std::size_t>(call.thread)] = 1;
    }
    std::vector<Duration> own(rank_.trace.events.size());
    for (std::size_t i = 0; i < rank_.trace.events.size(); ++i) {
      const RecordedEvent& event = rank_.trace.events[i];
      if (!is_host(event)) continue;
      const Interval interval = interval_of(event);
      if (works[static_cast<std::size_t>(event.thread)] == 0) continue;
      sort_event(event, interval);
      own[i] = interval.length();
      const std::int32_t parent = line_.parent[i];
      if (parent != kNone && event.kind != EventKind::Annotation) {
        own[static_cast<std::size_t>(parent)] -= interval.length();
      }
    }
    for (const HostCall& call : line_.calls) {
      if (call.kind == CallKind::Blocking && !call.is_aside)
        sets_[0].push_back({call.start, call.end});
    }
    for (std::size_t i = 0; i < own.size(); ++i) {
      const RecordedEvent& event = rank_.trace.events[i];
      if (event.kind != EventKind::Operator || own[i] <= Duration{}) continue;
      if (!is_in_a_step(interval_of(event).start)) continue;
      Sum& sum = own_time_[static_cast<std::size_t>(event.name)];
      sum.time += own[i];
      ++sum.count;
    }
    for (Intervals& set : sets_) set = traces::union_of(std::move(set));
    calls_ = traces::union_of(std::move(calls_));
    operators_ = traces::union_of(std::move(operators_));
    backward_ = traces::union_of(std::move(backward_));
    for (const Interval& now : backward_) {
      Intervals& merged = sets_[static_cast<std::size_t>(HostPart::Backward)];
      if (!merged.empty() && now.start - merged.back().end <= kPauseOfBackward) {
        merged.back().end = now.end;
      } else {
        merged.push_back(now);
      }
    }
  }

  void sort_event(const RecordedEvent& event, Interval interval) {
    const imports::Recording& trace = rank_.trace;
    if (event.kind == EventKind::RuntimeCall) {
      calls_.push_back(interval);
      return;
    }
    if (trace.is(event, Is::OptimizerStep) || trace.is(event, Is::ZeroGrad)) {
      sets_[static_cast<std::size_t>(HostPart::Optimizer)].push_back(interval);
      return;
    }
    if (trace.is(event, Is::DataLoading)) {
      sets_[static_cast<std::size_t>(HostPart::DataLoading)].push_back(interval);
      return;
    }
    if (trace.is(event, Is::EngineFunction)) backward_.push_back(interval);
    if (event.kind == EventKind::Operator && !trace.is(event, Is::ProfilerStep)) {
      operators_.push_back(interval);
    } else if (event.kind == EventKind::Annotation && is_in_a_step(interval.start) &&
               !trace.is(event, Is::ProfilerStep) && !trace.is(event, Is::LibraryRange) &&
               !trace.is(event, Is::ThreadCollective)) {
      Sum& sum = annotated_[static_cast<std::size_t>(event.name)];
      sum.time += interval.length();
      ++sum.count;
    }
  }

  // The parts of one step, each without those before it.
  void add(const TracedStep& step) {
    result_.step += step.end - step.start;
    Intervals left = {{step.start, step.end}};
    std::array<Intervals, kHostParts> parts;
    for (std::size_t p = 0; p <= static_cast<std::size_t>(HostPart::Backward); ++p) {
      parts[p] = common(left, sets_[p]);
      left = traces::without(left, sets_[p]);
    }
    const Intervals& backward = parts[static_cast<std::size_t>(HostPart::Backward)];
    const Instant split = backward.empty() ? step.end : backward.back().start;
    const Intervals before = {{step.start, split}};
    parts[static_cast<std::size_t>(HostPart::Forward)] = common(left, before);
    parts[static_cast<std::size_t>(HostPart::Other)] = traces::without(left, before);
    for (std::size_t p = 0; p < kHostParts; ++p) account(static_cast<HostPart>(p), parts[p]);
    count_launches(step, parts);
  }

  void account(HostPart part, const Intervals& intervals) {
    HostPartTime& sums = result_.parts[static_cast<std::size_t>(part)];
    const Intervals outside_calls = traces::without(intervals, calls_);
    const Intervals pauses = traces::without(outside_calls, operators_);
    sums.time += traces::length(intervals);
    sums.in_calls += traces::length(intervals) - traces::length(outside_calls);
    sums.in_operators += traces::length(outside_calls) - traces::length(pauses);
    sums.python += traces::length(pauses);
    if (part == HostPart::Waiting) return;
    for (const Interval& pause : pauses) keep(pause, part);
  }

  void keep(Interval pause, HostPart part) {
    std::vector<HostPause>& longest = result_.pauses;
    constexpr std::size_t kKept = 3;
    if (longest.size() == kKept && longest.back().time >= pause.length()) return;
    HostPause now{.time = pause.length(), .part = part, .after = {}, .before = {}};
    // The event that ended last before it, and the first from its end on.
    const std::int64_t from = line_.origin_ns + pause.start.time_since_epoch().count();
    const std::int64_t to = line_.origin_ns + pause.end.time_since_epoch().count();
    const auto& events = rank_.trace.events;
    const auto counts = [&](const RecordedEvent& event) {
      return event.kind == EventKind::Operator || event.kind == EventKind::RuntimeCall;
    };
    auto next = std::ranges::lower_bound(events, to, {}, &RecordedEvent::start_ns);
    while (next != events.end() && !counts(*next)) ++next;
    if (next != events.end()) now.before = rank_.trace.name_of(*next);
    auto last = std::ranges::upper_bound(events, from, {}, &RecordedEvent::start_ns);
    for (int looked = 0; last != events.begin() && looked < 1000; ++looked) {
      --last;
      if (!counts(*last) || last->end_ns() > from || from - last->end_ns() > 1000) continue;
      now.after = rank_.trace.name_of(*last);
      break;
    }
    if (longest.size() == kKept) longest.pop_back();
    longest.insert(
        std::ranges::upper_bound(longest, now.time, std::ranges::greater{}, &HostPause::time),
        std::move(now));
  }

  void count_launches(const TracedStep& step, const std::array<Intervals, kHostParts>& parts) {
    auto call = std::ranges::lower_bound(line_.calls, step.start, {}, &HostCall::start);
    for (; call != line_.calls.end() && call->start < step.end; ++call) {
      if (call->first_work == kNone) continue;
      for (std::size_t p = 0; p < kHostParts; ++p) {
        const auto after = std::ranges::upper_bound(parts[p], call->start, {}, &Interval::start);
        if (after == parts[p].begin() || std::prev(after)->end <= call->start) continue;
        ++result_.parts[p].launches;
        break;
      }
    }
  }

  void name_most(const std::vector<Sum>& sums, std::vector<NamedTime>& most,
                 std::int64_t steps) const {
    constexpr std::size_t kNamed = 5;
    std::vector<std::pair<std::int32_t, Sum>> sorted;
    for (std::size_t n = 0; n < sums.size(); ++n) {
      if (sums[n].count > 0) sorted.emplace_back(static_cast<std::int32_t>(n), sums[n]);
    }
    std::ranges::stable_sort(sorted, std::ranges::greater{},
                             [](const auto& entry) { return entry.second.time; });
    for (std::size_t i = 0; i < std::min(kNamed, sorted.size()); ++i) {
      const Sum& sum = sorted[i].second;
      most.push_back(
          {rank_.trace.names[static_cast<std::size_t>(sorted[i].first)],
           sum.time / std::max<std::int64_t>(1, steps),
           static_cast<double>(sum.count) / static_cast<double>(std::max<std::int64_t>(1, steps))});
    }
  }

  const RankTrace& rank_;
  const RankTimeline& line_;
  std::array<Intervals, kHostParts> sets_;  // by part, whatever the step
  Intervals calls_, operators_, backward_;
  std::vector<Sum> own_time_, annotated_;  // by number of the name
  HostTime result_;
};

}  // namespace

HostTime host_time(const RankTrace& rank) { return Accounts(rank).account(); }

OptimizerCalls optimizer_calls(const RankTrace& rank) {
  Intervals inside;
  for (const RecordedEvent& event : rank.trace.events) {
    const bool named = event.kind == EventKind::Annotation || event.kind == EventKind::Operator;
    if (!named || !rank.trace.is(event, Is::OptimizerStep)) continue;
    inside.push_back({rank.line.instant(event.start_ns), rank.line.instant(event.end_ns())});
  }
  inside = traces::union_of(std::move(inside));
  OptimizerCalls calls;
  calls.inside.assign(rank.line.calls.size(), 0);
  std::int64_t launches = 0;
  for (std::size_t c = 0; c < rank.line.calls.size(); ++c) {
    const HostCall& call = rank.line.calls[c];
    const auto after = std::ranges::upper_bound(inside, call.start, {}, &Interval::start);
    if (after == inside.begin() || std::prev(after)->end <= call.start) continue;
    calls.inside[c] = 1;
    launches += call.first_work == kNone ? 0 : 1;
  }
  calls.launches = static_cast<double>(launches) /
                   static_cast<double>(std::max<std::size_t>(1, rank.line.steps.size()));
  return calls;
}

}  // namespace dovetail::diagnose
