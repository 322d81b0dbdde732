// Sums over the intervals in which a core was taken from its rank: the share of time, the length
// of a typical burst, and what of a window was taken. Intervals are sorted and disjoint, so each
// question is a binary search and a walk.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/disturbances.h"

#include <algorithm>

namespace dovetail::traces {
namespace {

Duration total(const CoreRecord& record) {
  Duration sum{};
  for (const Taken& taken : record.taken) sum += taken.length;
  return sum;
}

// The first that ends after `time`.
std::vector<Taken>::const_iterator first_after(const CoreRecord& record, Duration time) {
  return std::partition_point(record.taken.begin(), record.taken.end(), [time](const Taken& taken) {
    return taken.start + taken.length <= time;
  });
}

}  // namespace

double share_taken(const CoreRecord& record) {
  if (record.watched <= Duration{}) return 0;
  return static_cast<double>(total(record).count()) / static_cast<double>(record.watched.count()) +
         record.unseen;
}

Duration typical_burst(const CoreRecord& record) {
  std::vector<Duration> lengths;
  for (const Taken& taken : record.taken) lengths.push_back(taken.length);
  std::sort(lengths.begin(), lengths.end());
  Duration left = total(record) / 2;
  for (const Duration length : lengths) {
    left -= length;
    if (left <= Duration{}) return length;
  }
  return {};
}

Duration taken_within(const CoreRecord& record, Duration start, Duration end) {
  Duration sum{};
  for (auto taken = first_after(record, start); taken != record.taken.end() && taken->start < end;
       ++taken) {
    sum += std::min(end, taken->start + taken->length) - std::max(start, taken->start);
  }
  return sum;
}

CoreRecord silences(const CoreRecord& record, Duration shield) {
  CoreRecord silent = record;
  silent.taken.clear();
  for (const Taken& taken : record.taken) {
    if (taken.length > shield) {
      silent.taken.push_back({.start = taken.start + shield, .length = taken.length - shield});
    }
  }
  return silent;
}

CoreRecord restless(const Disturbances& all) {
  constexpr Duration kMostCatchingUp = std::chrono::milliseconds(30);
  constexpr Duration kMargin = std::chrono::microseconds(500);
  std::vector<Taken> stretched;
  CoreRecord joint;
  for (const CoreRecord& record : all) {
    joint.watched = std::max(joint.watched, record.watched);
    for (const Taken& taken : record.taken) {
      const Duration start = std::max(Duration{}, taken.start - kMargin);
      const Duration end = taken.start + taken.length + kMargin;
      stretched.push_back(
          {.start = start, .length = end + std::min(taken.length, kMostCatchingUp) - start});
    }
  }
  std::ranges::sort(stretched, {}, &Taken::start);
  for (const Taken& next : stretched) {
    const Duration end = std::min(joint.watched, next.start + next.length);
    if (!joint.taken.empty() &&
        joint.taken.back().start + joint.taken.back().length >= next.start) {
      Taken& last = joint.taken.back();
      last.length = std::max(last.length, end - last.start);
    } else if (end > next.start) {
      joint.taken.push_back({.start = next.start, .length = end - next.start});
    }
  }
  return joint;
}

CoreRecord window_of(const CoreRecord& record, Duration start, Duration end) {
  CoreRecord window = {.core = record.core,
                       .watched = end - start,
                       .taken = {},
                       .slowdown = record.slowdown,
                       .quickest = record.quickest,
                       .unseen = record.unseen};
  for (auto taken = first_after(record, start); taken != record.taken.end() && taken->start < end;
       ++taken) {
    const Duration from = std::max(start, taken->start);
    const Duration to = std::min(end, taken->start + taken->length);
    window.taken.push_back({.start = from - start, .length = to - from});
  }
  return window;
}

}  // namespace dovetail::traces
