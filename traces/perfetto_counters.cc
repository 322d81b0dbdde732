// Computes the counters of a rank (bytes in flight, bandwidth, exposed communication so far) as
// step functions of time: each span adds its level at its start and takes it off at its end, and a
// sweep over the sorted moments adds them up.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/perfetto_counters.h"

#include "traces/intervals.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace dovetail::traces {
namespace {

// A sum of levels, each of which holds for a while.
class Levels {
 public:
  void add(Instant from, Instant to, double level) {
    if (from >= to) return;
    changes_.push_back({from, level, 1});
    changes_.push_back({to, -level, -1});
  }

  // From `begin` on, where it is 0. REQUIRES: nothing was added before that.
  [[nodiscard]] std::vector<CounterPoint> points(Instant begin) && {
    std::ranges::sort(changes_, {}, &Change::at);
    std::vector<CounterPoint> points = {{begin, 0}};
    double sum = 0;
    std::int64_t held = 0;
    for (const Change& change : changes_) {
      held += change.held;
      // No remainder of rounding stays.
      sum = held == 0 ? 0 : sum + change.level;
      if (points.back().at == change.at) {
        points.back().value = sum;
      } else {
        points.push_back({change.at, sum});
      }
    }
    return points;
  }

 private:
  struct Change {
    Instant at;
    double level = 0;
    std::int64_t held = 0;
  };
  std::vector<Change> changes_;
};

bool hides(const Span& span, SpanKind kind, ComputeWork compute) {
  if (compute == ComputeWork::AnyStream) return kind == SpanKind::Compute;
  return span.stream == kComputeStream && is_compute(kind);
}

// Moments with a collective in flight and no compute.
std::vector<Interval> exposed_moments(const Trace& trace, Rank rank, ComputeWork compute) {
  std::vector<Interval> collectives;
  std::vector<Interval> busy;
  for (const Span& span : spans_of(trace, rank)) {
    const SpanKind kind = trace.command(span.command).kind;
    if (kind == SpanKind::Collective) collectives.push_back({span.start, span.end});
    if (hides(span, kind, compute)) busy.push_back({span.start, span.end});
  }
  return without(union_of(std::move(collectives)), union_of(std::move(busy)));
}

// The parts of the moments that lie in a window.
std::vector<Interval> within(std::span<const Interval> moments, const StepWindow& window) {
  std::vector<Interval> parts;
  auto moment = std::ranges::upper_bound(moments, window.start, {}, &Interval::end);
  for (; moment != moments.end() && moment->start < window.end; ++moment) {
    parts.push_back({std::max(moment->start, window.start), std::min(moment->end, window.end)});
  }
  return parts;
}

std::vector<CounterPoint> exposed_so_far(std::span<const Interval> moments,
                                         std::span<const StepWindow> windows) {
  std::vector<CounterPoint> points;
  for (const StepWindow& window : windows) {
    points.push_back({window.start, 0});
    Duration sum{};
    for (const Interval& part : within(moments, window)) {
      sum += part.length();
      // At the very end of a step the next one begins again with 0.
      points.push_back({std::min(part.end, window.end - Duration(1)), to_us(sum)});
    }
  }
  return points;
}

}  // namespace

std::vector<Counter> counters_of(const Trace& trace, Rank rank, std::span<const StepWindow> windows,
                                 ComputeWork compute) {
  Levels in_flight;
  Levels on_link;
  bool any = false;
  bool link_is_known = true;
  Instant begin = windows.front().start;
  for (const Span& span : spans_of(trace, rank)) {
    const CommandInfo& info = trace.command(span.command);
    if (info.kind != SpanKind::Collective) continue;
    any = true;
    begin = std::min(begin, span.start);
    in_flight.add(span.start, span.end, static_cast<double>(info.bytes.count()));
    if (info.bus_bytes.count() == 0 || !span.transfer_start) {
      link_is_known = false;
    } else if (*span.transfer_start < span.end) {
      // Bytes per nanosecond are GB/s.
      on_link.add(*span.transfer_start, span.end,
                  static_cast<double>(info.bus_bytes.count()) /
                      static_cast<double>((span.end - *span.transfer_start).count()));
    }
  }
  std::vector<Counter> counters;
  if (!any) return counters;
  counters.push_back({"in flight", "bytes", std::move(in_flight).points(begin)});
  if (link_is_known) counters.push_back({"link use", "GB/s", std::move(on_link).points(begin)});
  counters.push_back({"exposed communication of the step", "us",
                      exposed_so_far(exposed_moments(trace, rank, compute), windows)});
  return counters;
}

std::vector<Duration> exposed_by_step(const Trace& trace, Rank rank,
                                      std::span<const StepWindow> windows, ComputeWork compute) {
  const std::vector<Interval> moments = exposed_moments(trace, rank, compute);
  std::vector<Duration> exposed;
  for (const StepWindow& window : windows) exposed.push_back(length(within(moments, window)));
  return exposed;
}

}  // namespace dovetail::traces
