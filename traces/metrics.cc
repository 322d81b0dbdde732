// Derives the figures of a step from its spans: the window of each step, what the compute stream
// did in it, and how much communication was exposed. All sums are of integer nanoseconds, and the
// activities of a rank always add up to its window.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/metrics.h"

#include "base/error.h"
#include "traces/intervals.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ostream>
#include <utility>

namespace dovetail::traces {
namespace {

struct Window : StepWindow {
  bool seen = false;
};

// Spans are sorted by rank, so a later rank must be later by more than nothing to be the slowest.
void extend(Window& window, const Span& span) {
  if (!window.seen || span.start < window.start) window.start = span.start;
  if (!window.seen || span.end > window.end) {
    window.end = span.end;
    window.slowest = span.rank;
  }
  window.seen = true;
}

// A communication stream may stand at its next wait long before the step begins, and kernels carry
// the error of another clock.
bool marks_the_step(const Trace& trace, const Span& span) {
  if (span.stream == kComputeStream) return true;
  const SpanKind kind = trace.command(span.command).kind;
  return kind != SpanKind::Wait && kind != SpanKind::Kernel;
}

// Whether step k begins where step k - 1 ends; otherwise each begins with its own first span.
bool follows(const Trace& trace, std::int32_t step) {
  return trace.provenance.origin == Origin::Simulated && step > 0;
}

// What one rank did, as far as one step is concerned.
struct RankSpans {
  std::vector<const Span*> all_compute_stream;  // of any step
  std::vector<const Span*> compute_stream;      // of the step
  std::vector<const Span*> collectives;         // of the step, on any stream
  std::vector<Interval> busy;                   // union of compute, of any step
  std::vector<Interval> step_busy;              // union of compute, of the step
};

RankSpans gather(const Trace& trace, std::int32_t step, Rank rank) {
  RankSpans result;
  std::vector<Interval> busy;
  std::vector<Interval> step_busy;
  for (const Span& span : spans_of(trace, rank)) {
    const SpanKind kind = trace.command(span.command).kind;
    const bool computes = span.stream == kComputeStream && is_compute(kind);
    if (computes) busy.push_back({span.start, span.end});
    if (span.stream == kComputeStream) result.all_compute_stream.push_back(&span);
    if (span.step != step) continue;
    if (computes) step_busy.push_back({span.start, span.end});
    if (span.stream == kComputeStream) result.compute_stream.push_back(&span);
    if (kind == SpanKind::Collective) result.collectives.push_back(&span);
  }
  std::ranges::stable_sort(result.collectives, {}, [](const Span* span) { return span->start; });
  result.busy = union_of(std::move(busy));
  result.step_busy = union_of(std::move(step_busy));
  return result;
}

// Unions, not sums: two collectives in flight at once are one stretch of communication.
void fill_communication(StepReport& report, const RankSpans& spans) {
  std::vector<Interval> whole;
  std::vector<Interval> moving;
  for (const Span* span : spans.collectives) {
    whole.push_back({span->start, span->end});
    if (span->transfer_start) moving.push_back({*span->transfer_start, span->end});
  }
  const bool transfer_is_known = moving.size() == whole.size();
  whole = union_of(std::move(whole));
  report.communication = length(whole);
  report.exposed = uncovered(whole, spans.busy);
  if (!transfer_is_known) return;
  moving = union_of(std::move(moving));
  report.transfer = length(moving);
  report.exposed_transfer = uncovered(moving, spans.busy);
}

// Rows count from the window's start, so that rows of different steps and traces can be compared.
void fill_rows(StepReport& report, const Trace& trace, const RankSpans& spans) {
  for (const Span* span : spans.collectives) {
    const CommandInfo& info = trace.command(span->command);
    BucketRow row;
    row.command = info.id;
    row.bucket = info.bucket;
    row.name = info.name;
    row.bytes = info.bytes;
    row.start = span->start - report.start;
    row.end = span->end - report.start;
    if (span->transfer_start) row.transfer_start = *span->transfer_start - report.start;
    row.exposed = uncovered(Interval{span->start, span->end}, spans.busy);
    report.buckets.push_back(std::move(row));
  }
  for (const Span* span : spans.compute_stream) {
    const CommandInfo& info = trace.command(span->command);
    if (info.kind != SpanKind::Wait) continue;
    report.stalls.push_back(
        {info.id, info.bucket, info.name, span->start - report.start, span->end - span->start});
  }
}

// One rank's view of a window that all ranks share.
StepReport report_on(const Trace& trace, std::int32_t step, const Window& window, Rank rank) {
  StepReport report;
  report.origin = trace.provenance.origin;
  report.step = step;
  report.start = window.start;
  report.step_time = window.end - window.start;
  report.rank = rank;
  const RankSpans spans = gather(trace, step, rank);
  report.compute_busy = length(spans.step_busy);
  fill_communication(report, spans);
  fill_rows(report, trace, spans);
  for (const Span* span : spans.all_compute_stream) {
    const Duration inside = std::min(span->end, window.end) - std::max(span->start, window.start);
    if (inside <= Duration{}) continue;
    report.breakdown[activity_of(trace.command(span->command))] += inside;
  }
  // Spans of one stream do not overlap: what is left of the window is idle.
  report.breakdown[Activity::Idle] = report.step_time - report.breakdown.total();
  DOVETAIL_CHECK(report.breakdown[Activity::Idle] >= Duration{})
      << "overlapping spans on rank " << rank << ", stream 0, step " << step;
  return report;
}

// One step alone; step_windows would fill all of them.
Window step_window(const Trace& trace, std::int32_t step) {
  DOVETAIL_CHECK(0 <= step && step < trace.steps) << "step " << step << " of " << trace.steps;
  Window window;
  Window before;
  for (const Span& span : trace.spans) {
    const bool earlier = follows(trace, step) && span.step == step - 1;
    if ((span.step != step && !earlier) || !marks_the_step(trace, span)) continue;
    extend(earlier ? before : window, span);
  }
  DOVETAIL_CHECK(window.seen) << "step " << step << " has no spans";
  if (before.seen) window.start = before.end;
  return window;
}

}  // namespace

std::string_view label(Origin origin) {
  return origin == Origin::Simulated ? "predicted" : "measured";
}

Activity activity_of(const CommandInfo& command) {
  switch (command.kind) {
    case SpanKind::Copy:
      return Activity::Copy;
    case SpanKind::Enqueue:
      return Activity::Enqueue;
    case SpanKind::Collective:
      return Activity::Collective;
    case SpanKind::Wait:
      return Activity::Stall;
    case SpanKind::Compute:
    case SpanKind::Kernel:
      break;
  }
  switch (command.phase) {
    case SpanPhase::Forward:
      return Activity::Forward;
    case SpanPhase::Backward:
      return Activity::Backward;
    case SpanPhase::Optimizer:
      return Activity::Optimizer;
    case SpanPhase::Communication:
      return Activity::Copy;
  }
  DOVETAIL_CHECK(false) << "command " << command.id;
}

Duration Breakdown::total() const {
  Duration sum{};
  for (const Duration time : time_) sum += time;
  return sum;
}

std::optional<double> StepReport::overlap_ratio() const {
  if (communication == Duration{}) return std::nullopt;
  return static_cast<double>((communication - exposed).count()) /
         static_cast<double>(communication.count());
}

std::span<const Span> spans_of(const Trace& trace, Rank rank) {
  const auto begin = std::ranges::lower_bound(trace.spans, rank, {}, &Span::rank);
  const auto end = std::ranges::upper_bound(trace.spans, rank, {}, &Span::rank);
  return {begin, end};
}

std::span<const Span> spans_of(const Trace& trace, Rank rank, StreamId stream) {
  const std::span<const Span> spans = spans_of(trace, rank);
  const auto begin = std::ranges::lower_bound(spans, stream, {}, &Span::stream);
  const auto end = std::ranges::upper_bound(spans, stream, {}, &Span::stream);
  return {begin, end};
}

bool is_compute(SpanKind kind) {
  return kind == SpanKind::Compute || kind == SpanKind::Copy || kind == SpanKind::Enqueue;
}

std::vector<StepWindow> step_windows(const Trace& trace) {
  std::vector<Window> windows(static_cast<std::size_t>(trace.steps));
  for (const Span& span : trace.spans) {
    if (marks_the_step(trace, span)) extend(windows[static_cast<std::size_t>(span.step)], span);
  }
  for (std::int32_t step = trace.steps - 1; step >= 0; --step) {
    if (!follows(trace, step)) continue;
    const auto at = static_cast<std::size_t>(step);
    windows[at].start = windows[at - 1].end;
  }
  return {windows.begin(), windows.end()};
}

std::vector<Duration> step_times(const Trace& trace) {
  std::vector<Duration> times;
  for (const StepWindow& window : step_windows(trace)) times.push_back(window.end - window.start);
  return times;
}

StepReport step_report(const Trace& trace, std::int32_t step) {
  const Window window = step_window(trace, step);
  return report_on(trace, step, window, window.slowest);
}

StepReport step_report(const Trace& trace, std::int32_t step, Rank rank) {
  DOVETAIL_CHECK(std::ranges::find(trace.ranks, rank) != trace.ranks.end()) << "rank " << rank;
  return report_on(trace, step, step_window(trace, step), rank);
}

std::int32_t median_step_index(const Trace& trace) {
  const std::vector<Duration> times = step_times(trace);
  // A nearest-rank median is a value that occurred, so the search always ends at a step.
  const auto first = std::ranges::find(times, spread(times).median);
  return static_cast<std::int32_t>(first - times.begin());
}

StepReport median_step(const Trace& trace) { return step_report(trace, median_step_index(trace)); }

// In fifths of a value, so that no rounding decides before the end.
Duration quickest_fifth(std::span<const Duration> sorted) {
  Duration sum{};
  auto fifths = static_cast<std::int64_t>(sorted.size());
  for (const Duration value : sorted) {
    const std::int64_t part = std::min<std::int64_t>(fifths, 5);
    sum += value * part;
    fifths -= part;
  }
  return sum / static_cast<std::int64_t>(sorted.size());
}

Spread spread(std::span<const Duration> values) {
  DOVETAIL_CHECK(!values.empty()) << "no values";
  std::vector<Duration> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  // ceil(tenths n / 10), in integers so that no rounding decides.
  const auto quantile = [&](std::size_t tenths) {
    return sorted[(tenths * sorted.size() + 9) / 10 - 1];
  };
  return {quantile(5), quantile(1), quantile(9), sorted.front(), quickest_fifth(sorted)};
}

std::string Milliseconds::operator()(Duration time) const {
  // Rounded in whole units of the last digit, half away from zero, so that no float decides.
  const std::int64_t unit = decimals == 3 ? 1000 : 1;
  const std::int64_t per_ms = 1'000'000 / unit;
  const std::int64_t ns = std::abs(time.count());
  const std::int64_t shown = (ns + unit / 2) / unit;
  const std::string rest = std::to_string(shown % per_ms);
  return (time.count() < 0 && shown > 0 ? "-" : "") + std::to_string(shown / per_ms) + "." +
         std::string(static_cast<std::size_t>(decimals) - rest.size(), '0') + rest;
}

Milliseconds milliseconds_of(Duration step_time) {
  return {std::chrono::abs(step_time) < std::chrono::milliseconds(1) ? 6 : 3};
}

void print(std::ostream& out, const StepReport& report) {
  const Milliseconds ms = milliseconds_of(report.step_time);
  out << label(report.origin) << " step " << report.step << ", rank " << report.rank
      << " (times in ms)\n";
  const auto line = [&](std::string_view name, const std::string& value) {
    out << "  " << name << std::string(24 - name.size(), ' ')
        << std::string(value.size() < 14 ? 14 - value.size() : 0, ' ') << value << '\n';
  };
  const auto time = [&](std::string_view name, std::optional<Duration> value) {
    line(name, value ? ms(*value) : "unknown");
  };
  time("step time", report.step_time);
  time("compute busy", report.compute_busy);
  time("communication", report.communication);
  time("exposed communication", report.exposed);
  time("transfer", report.transfer);
  time("exposed transfer", report.exposed_transfer);
  for (const Activity activity : kAllOf<Activity>) {
    // What did not happen is not worth a line.
    if (report.breakdown[activity] == Duration{}) continue;
    time(to_string(activity), report.breakdown[activity]);
  }
}

}  // namespace dovetail::traces
