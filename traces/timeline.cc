// Draws a trace as text: the window is cut into columns of equal time, each span adds its share to
// the columns that it covers, and each column shows what filled most of it.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/timeline.h"

#include "base/error.h"
#include "traces/intervals.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::traces {
namespace {

// What one column can show: a letter or sign of the legend, or the last digit of a bucket.
struct Mark {
  char sign = '.';
  std::optional<BucketId> bucket = std::nullopt;
  friend bool operator==(const Mark&, const Mark&) = default;
};

constexpr std::array<std::pair<char, std::string_view>, 7> kLegend = {
    {{'F', "forward"},
     {'B', "backward"},
     {'O', "optimizer"},
     {'c', "copy"},
     {'e', "enqueue"},
     {'w', "stall"},
     {'#', "communication without a bucket"}}};

Mark mark_of_collective(const CommandInfo& command) {
  if (!command.bucket) return {'#'};
  return {static_cast<char>('0' + command.bucket->value % 10), command.bucket};
}

Mark mark_of(const CommandInfo& command, StreamId stream) {
  switch (activity_of(command)) {
    case Activity::Forward:
      return {'F'};
    case Activity::Backward:
      return {'B'};
    case Activity::Optimizer:
      return {'O'};
    case Activity::Copy:
      return {'c'};
    case Activity::Enqueue:
      return {'e'};
    case Activity::Collective:
      return mark_of_collective(command);
    case Activity::Stall:
      return stream == kComputeStream ? Mark{'w'} : Mark{};
    case Activity::Idle:
      break;
  }
  return {};
}

// How long each mark filled one column, in order of appearance.
using Cell = std::vector<std::pair<Mark, Duration>>;

void fill(Cell& cell, const Mark& what, Duration time) {
  const auto same = std::ranges::find(cell, what, &Cell::value_type::first);
  if (same == cell.end()) {
    cell.push_back({what, time});
  } else {
    same->second += time;
  }
}

// Work wins against an equal share of nothing: a picture that hides work misleads more than one
// that hides a gap.
Mark winner(const Cell& cell, Duration width) {
  Duration idle = width;
  for (const auto& [what, time] : cell) idle -= time;
  Mark best;
  Duration most{};
  for (const auto& [what, time] : cell) {
    if (time > most) {
      best = what;
      most = time;
    }
  }
  return most >= idle ? best : Mark{};
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
std::vector<Mark> line(const Trace& trace, std::span<const Span> spans, Interval window,
                       Duration column) {
  std::vector<Cell> cells(
      static_cast<std::size_t>(ceil_divide(window.length().count(), column.count())));
  for (const Span& span : spans) {
    const Mark what = mark_of(trace.command(span.command), span.stream);
    const Instant end = std::min(span.end, window.end);
    for (Instant at = std::max(span.start, window.start); at < end;) {
      const auto index = (at - window.start) / column;
      const Instant next = std::min(end, window.start + (index + 1) * column);
      fill(cells[static_cast<std::size_t>(index)], what, next - at);
      at = next;
    }
  }
  std::vector<Mark> marks;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Instant start = window.start + static_cast<std::int64_t>(i) * column;
    marks.push_back(winner(cells[i], std::min(column, window.end - start)));
  }
  return marks;
}

// What the picture holds, and what it could not show.
class Picture {
 public:
  Picture(const Trace& trace, Interval window, Duration column)
      : trace_(trace), window_(window), column_(column) {}

  // A stream on which nothing happens has no line.
  void add(Rank rank, StreamId stream) {
    const std::span<const Span> spans = spans_of(trace_, rank, stream);
    if (spans.empty()) return;
    for (const Span& span : spans) {
      const auto& bucket = trace_.command(span.command).bucket;
      const bool collective = mark_of(trace_.command(span.command), stream).bucket.has_value();
      if (bucket && collective && span.end > window_.start && span.start < window_.end) {
        travelling_.insert(*bucket);
      }
    }
    std::string text;
    for (const Mark& mark : line(trace_, spans, window_, column_)) {
      text += mark.sign;
      signs_.insert(mark.sign);
      if (mark.bucket) drawn_.insert(*mark.bucket);
    }
    // The idle end of a line says nothing.
    text.erase(text.find_last_not_of('.') + 1);
    lines_ += trace_.ranks.size() > 1 ? "r" + std::to_string(rank.value) + " " : "";
    lines_ += "s" + std::to_string(stream.value) + (text.empty() ? "" : " ") + text + '\n';
  }

  // "F forward, B backward, 0-9 last digit of the bucket": of what is drawn.
  [[nodiscard]] std::string legend() const {
    std::string text;
    for (const auto& [sign, word] : kLegend) {
      if (signs_.contains(sign)) text += std::string(", ") + sign + " " + std::string(word);
    }
    if (!drawn_.empty()) text += ", 0-9 last digit of the bucket";
    return text.empty() ? "nothing is long enough to be drawn" : text.substr(2);
  }

  [[nodiscard]] std::string lines() const { return lines_ + too_short(); }

 private:
  [[nodiscard]] std::string too_short() const {
    constexpr std::size_t kNamed = 8;
    std::vector<BucketId> missing;
    std::ranges::set_difference(travelling_, drawn_, std::back_inserter(missing));
    if (missing.empty()) return {};
    std::string text =
        missing.size() == 1 ? "too short to be drawn: bucket " : "too short to be drawn: buckets ";
    for (std::size_t i = 0; i < std::min(missing.size(), kNamed); ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(missing[i].value);
    }
    if (missing.size() > kNamed)
      text += " and " + std::to_string(missing.size() - kNamed) + " more";
    return text + '\n';
  }

  const Trace& trace_;
  Interval window_;
  Duration column_;
  std::set<char> signs_;
  std::set<BucketId> travelling_;
  std::set<BucketId> drawn_;
  std::string lines_;
};

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
  Picture picture(trace, window, column);
  for (const Rank rank : trace.ranks) {
    for (const StreamInfo& stream : trace.streams) picture.add(rank, stream.id);
  }
  return text + "; a column is " + dovetail::to_string(column) + "; " + picture.legend() + '\n' +
         picture.lines();
}

}  // namespace dovetail::traces
