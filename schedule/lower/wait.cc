// Decides before which op the compute stream waits for each collective: before the first one that
// reads or overwrites a member, or earlier where the Schedule says so.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/wait.h"

#include "base/count.h"

#include <algorithm>

namespace dovetail::schedule::internal {
namespace {

// The first op behind the launch that touches a member.
std::size_t first_use(const Draft& draft, const RoleDraft& role, const Travel& travel) {
  std::size_t first = kEnd;
  for (const Slice& slice : draft.schedule.buckets[travel.what].gradients) {
    std::int32_t k = role.first_access.at(draft.travels.at(slice.tensor));
    while (k >= 0) {
      const Access& access = role.accesses[static_cast<std::size_t>(k)];
      if (access.op > *travel.launch_after) {
        first = std::min(first, access.op);
        break;
      }
      k = access.next;
    }
  }
  return first;
}

bool same_batch(const Bucket& a, const Bucket& b) {
  const auto* in_a = std::get_if<LaunchInBatch>(&a.launch);
  const auto* in_b = std::get_if<LaunchInBatch>(&b.launch);
  if (in_a != nullptr && in_b != nullptr) return in_a->batch == in_b->batch;
  return std::holds_alternative<LaunchAfterBackward>(a.launch) &&
         std::holds_alternative<LaunchAfterBackward>(b.launch);
}

// The first bucket behind this one, in its micro-step, that is not of its batch.
std::optional<std::size_t> next_batch(const Draft& draft, const RoleDraft& role,
                                      std::size_t index) {
  const Travel& mine = role.travels[index];
  for (std::size_t i = index + 1; i < role.travels.size(); ++i) {
    const Travel& other = role.travels[i];
    if (other.micro_step != mine.micro_step) return std::nullopt;
    if (!same_batch(draft.schedule.buckets[mine.what], draft.schedule.buckets[other.what])) {
      return i;
    }
  }
  return std::nullopt;
}

}  // namespace

void place_waits(const Draft& draft, RoleDraft& role) {
  for (std::size_t i = 0; i < role.travels.size(); ++i) {
    Travel& travel = role.travels[i];
    const std::size_t use = first_use(draft, role, travel);
    travel.wait_before = use;
    const WaitPoint point = draft.schedule.buckets[travel.what].wait;
    if (point == WaitPoint::FirstUse) continue;
    if (point == WaitPoint::BeforeNextBatch) {
      if (const auto next = next_batch(draft, role, i)) {
        if (*role.travels[*next].launch_after < use) travel.wait_at_launch = next;
        continue;
      }
    }
    const std::size_t after = role.after_backward[static_cast<std::size_t>(travel.micro_step)];
    // A bucket may be launched behind backward, too late to be waited for there.
    if (after > *travel.launch_after) travel.wait_before = std::min(use, after);
  }
}

std::string wait_report(const Draft& draft) {
  std::size_t first = 0;
  std::size_t next_batch = 0;
  for (const Bucket& bucket : draft.schedule.buckets) {
    if (bucket.wait == WaitPoint::FirstUse) ++first;
    if (bucket.wait == WaitPoint::BeforeNextBatch) ++next_batch;
  }
  const std::size_t rest = draft.schedule.buckets.size() - first - next_batch;
  std::string line =
      counted(first, "bucket") + " at first use, " + std::to_string(rest) + " at end of backward";
  if (next_batch > 0) line += ", " + std::to_string(next_batch) + " before the next batch";
  return line;
}

}  // namespace dovetail::schedule::internal
