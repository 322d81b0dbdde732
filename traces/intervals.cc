// Union, difference and length of sets of moments, each in one pass over sorted intervals.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/intervals.h"

#include <algorithm>

namespace dovetail::traces {

std::vector<Interval> union_of(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& interval) { return interval.start == interval.end; });
  // The spans of one stream come in order.
  if (!std::ranges::is_sorted(intervals, {}, &Interval::start)) {
    std::ranges::sort(intervals, {}, &Interval::start);
  }
  std::vector<Interval> result;
  for (const Interval& next : intervals) {
    if (!result.empty() && next.start <= result.back().end) {
      // Touching intervals become one as well, so that equal sets are equal vectors.
      result.back().end = std::max(result.back().end, next.end);
    } else {
      result.push_back(next);
    }
  }
  return result;
}

Duration length(std::span<const Interval> intervals) {
  Duration total{};
  for (const Interval& interval : intervals) total += interval.length();
  return total;
}

std::vector<Interval> without(std::span<const Interval> intervals,
                              std::span<const Interval> cover) {
  std::vector<Interval> parts;
  for (const Interval& interval : intervals) {
    Instant from = interval.start;
    auto member = std::ranges::upper_bound(cover, interval.start, {}, &Interval::end);
    for (; member != cover.end() && member->start < interval.end; ++member) {
      if (from < member->start) parts.push_back({from, member->start});
      from = member->end;
    }
    if (from < interval.end) parts.push_back({from, interval.end});
  }
  return parts;
}

Duration uncovered(Interval interval, std::span<const Interval> cover) {
  Duration left = interval.length();
  const auto ends_after = std::ranges::upper_bound(cover, interval.start, {}, &Interval::end);
  for (auto member = ends_after; member != cover.end() && member->start < interval.end; ++member) {
    left -= std::min(member->end, interval.end) - std::max(member->start, interval.start);
  }
  return left;
}

Duration uncovered(std::span<const Interval> intervals, std::span<const Interval> cover) {
  Duration total{};
  for (const Interval& interval : intervals) total += uncovered(interval, cover);
  return total;
}

}  // namespace dovetail::traces
