// Fills columns of time with characters.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/timeline.h"

#include "base/error.h"
#include "traces/intervals.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::traces {
namespace {

constexpr std::string_view kBucketCharacters = "0123456789abcdefghijklmnopqrstuvwxyz";

char bucket_character(const CommandInfo& command) {
  if (!command.bucket) return '#';
  return kBucketCharacters[static_cast<std::size_t>(command.bucket->value) %
                           kBucketCharacters.size()];
}

char character(const CommandInfo& command, StreamId stream) {
  switch (activity_of(command)) {
    case Activity::Forward:
      return 'F';
    case Activity::Backward:
      return 'B';
    case Activity::Optimizer:
      return 'O';
    case Activity::Copy:
      return 'c';
    case Activity::Enqueue:
      return 'e';
    case Activity::Collective:
      return bucket_character(command);
    case Activity::Stall:
      return stream == kComputeStream ? 'w' : '.';
    case Activity::Idle:
      break;
  }
  return '.';
}

// How long each character filled one column, in order of appearance.
using Cell = std::vector<std::pair<char, Duration>>;

void add(Cell& cell, char what, Duration time) {
  const auto same = std::ranges::find(cell, what, &Cell::value_type::first);
  if (same == cell.end()) {
    cell.push_back({what, time});
  } else {
    same->second += time;
  }
}

// Work wins against an equal share of nothing: a picture that hides work misleads more than one
// that hides a gap.
char winner(const Cell& cell, Duration width) {
  Duration idle = width;
  for (const auto& [what, time] : cell) idle -= time;
  char best = '.';
  Duration most{};
  for (const auto& [what, time] : cell) {
    if (time > most) {
      best = what;
      most = time;
    }
  }
  return most >= idle ? best : '.';
}

// The stretch of time that the picture covers. All steps: from the first span to the last, which
// need not start at 0.
Interval shown(const Trace& trace, const TimelineOptions& options, std::int32_t step) {
  if (options.steps == Steps::Median) {
    const StepReport report = step_report(trace, step);
    return {report.start, report.start + report.step_time};
  }
  DOVETAIL_CHECK(!trace.spans.empty()) << "a trace without spans";
  Interval all{trace.spans.front().start, trace.spans.front().end};
  for (const Span& span : trace.spans) {
    all = {std::min(all.start, span.start), std::max(all.end, span.end)};
  }
  return all;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Round numbers, so that one can count columns in one's head.
Duration fitting_column(Duration shown, std::int64_t columns) {
  for (Duration power(1);; power *= 10) {
    for (const int factor : {1, 2, 5}) {
      if (ceil_divide(shown.count(), (power * factor).count()) <= columns) return power * factor;
    }
  }
}

// The columns of one stream. A span is cut at the borders of columns and adds to each its share.
std::string line(const Trace& trace, std::span<const Span> spans, Interval window,
                 Duration column) {
  std::vector<Cell> cells(
      static_cast<std::size_t>(ceil_divide(window.length().count(), column.count())));
  for (const Span& span : spans) {
    const char what = character(trace.command(span.command), span.stream);
    const Instant end = std::min(span.end, window.end);
    for (Instant at = std::max(span.start, window.start); at < end;) {
      const auto index = (at - window.start) / column;
      const Instant next = std::min(end, window.start + (index + 1) * column);
      add(cells[static_cast<std::size_t>(index)], what, next - at);
      at = next;
    }
  }
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Instant start = window.start + static_cast<std::int64_t>(i) * column;
    text += winner(cells[i], std::min(column, window.end - start));
  }
  // The idle end of a line says nothing.
  text.erase(text.find_last_not_of('.') + 1);
  return text;
}

}  // namespace

std::string timeline(const Trace& trace, const TimelineOptions& options) {
  DOVETAIL_CHECK(options.columns > 0) << options.columns;
  const std::int32_t step = median_step_index(trace);
  const Interval window = shown(trace, options, step);
  const Duration column = options.column.value_or(fitting_column(window.length(), options.columns));
  DOVETAIL_CHECK(column > Duration{}) << column.count();
  std::string text(label(trace.provenance.origin));
  text += options.steps == Steps::Median ? " step " + std::to_string(step)
                                         : " steps 0 to " + std::to_string(trace.steps - 1);
  text += "; a column is " + dovetail::to_string(column) +
          "; F forward, B backward, O optimizer, c copy, e enqueue, w stall, 0-9a-z bucket\n";
  for (const Rank rank : trace.ranks) {
    for (const StreamInfo& stream : trace.streams) {
      std::string name = trace.ranks.size() > 1 ? "r" + std::to_string(rank.value) + " " : "";
      name += "s" + std::to_string(stream.id.value);
      const std::string cells = line(trace, spans_of(trace, rank, stream.id), window, column);
      text += name;
      if (!cells.empty()) text += ' ';
      text += cells;
      text += '\n';
    }
  }
  return text;
}

}  // namespace dovetail::traces
