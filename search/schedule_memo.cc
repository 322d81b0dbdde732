// Finds Schedules that were simulated before: by a hash of what is cheap to hash, and then by
// equality, so that a collision costs time and never a wrong figure.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/schedule_memo.h"

#include <cstdint>

#include "base/random.h"

namespace dovetail::search {
namespace {

schedule::Schedule anonymous(schedule::Schedule schedule) {
  schedule.policy.clear();
  for (schedule::Bucket& bucket : schedule.buckets) bucket.closed_by.clear();
  return schedule;
}

std::size_t hash_of(const schedule::Schedule& schedule) {
  std::uint64_t hash = schedule.buckets.size();
  for (const schedule::Bucket& bucket : schedule.buckets) {
    hash = splitmix64(hash ^ bucket.gradients.size());
    if (bucket.gradients.empty()) continue;
    hash = splitmix64(hash ^ static_cast<std::uint64_t>(bucket.gradients.front().tensor.value));
  }
  return static_cast<std::size_t>(hash);
}

}  // namespace

bool is_same(const schedule::Schedule& a, const schedule::Schedule& b) {
  return a.buckets.size() == b.buckets.size() && anonymous(a) == anonymous(b);
}

const sim::StepSummary* ScheduleMemo::find(const schedule::Schedule& schedule) const {
  const auto [begin, end] = known_.equal_range(hash_of(schedule));
  if (begin == end) return nullptr;
  const schedule::Schedule wanted = anonymous(schedule);
  for (auto entry = begin; entry != end; ++entry) {
    if (entry->second.schedule == wanted) return &entry->second.summary;
  }
  return nullptr;
}

void ScheduleMemo::keep(const schedule::Schedule& schedule, const sim::StepSummary& summary) {
  known_.emplace(hash_of(schedule), Known{anonymous(schedule), summary});
}

}  // namespace dovetail::search
