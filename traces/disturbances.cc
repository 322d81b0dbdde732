// Sums over intervals.
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
