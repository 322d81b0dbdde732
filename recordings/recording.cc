// What every reader does with its events at the end.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/recording.h"

#include "base/error.h"

#include <algorithm>
#include <tuple>

namespace dovetail::imports {
namespace {

auto order_of(const RecordedEvent& event) {
  return std::tuple(event.start_ns, -event.duration_ns, event.thread, event.name, event.correlation,
                    event.external_id, event.kind);
}

}  // namespace

std::int64_t settle(Recording& recording) {
  for (const std::string& name : recording.names) recording.kinds.push_back(kinds_of(name));
  std::vector<RecordedEvent>& events = recording.events;
  std::ranges::sort(events, {}, order_of);
  const auto last = std::unique(events.begin(), events.end(), [](const auto& a, const auto& b) {
    return a.kind == b.kind && order_of(a) == order_of(b);
  });
  const auto twice = events.end() - last;
  events.erase(last, events.end());
  // Vectors grew by doubling, and a recording stays as long as it is explained.
  events.shrink_to_fit();
  recording.kernels.shrink_to_fit();
  recording.collectives.shrink_to_fit();
  recording.shapes.shrink_to_fit();
  return twice;
}

void require_one_recording(const Recording& recording) {
  constexpr std::int64_t kLongest = 1'000'000'000'000'000;  // ns: eleven days
  if (recording.events.empty()) return;
  const std::int64_t first = recording.events.front().start_ns;
  std::int64_t last = first;
  for (const RecordedEvent& event : recording.events) last = std::max(last, event.end_ns());
  if (last - first <= kLongest) return;
  throw InputError(recording.file + ": its events span more than eleven days: not one recording");
}

}  // namespace dovetail::imports
