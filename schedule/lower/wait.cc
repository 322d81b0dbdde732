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

WaitAsk ask_of(const Bucket& bucket) {
  const auto* batch = std::get_if<LaunchInBatch>(&bucket.launch);
  if (batch != nullptr) return {bucket.wait, batch->batch};
  const bool last = std::holds_alternative<LaunchAfterBackward>(bucket.launch);
  return {bucket.wait, last ? std::optional(kBatchAfterBackward) : std::nullopt};
}

}  // namespace

void place_waits(const Draft& draft, RoleDraft& role) {
  const auto step_of = [&](std::size_t i) { return role.travels[i].micro_step; };
  for (std::size_t first = 0, end = 0; first < role.travels.size(); first = end) {
    while (end < role.travels.size() && step_of(end) == step_of(first)) ++end;
    place_waits(
        std::span(role.travels).first(end), first,
        role.after_backward[static_cast<std::size_t>(step_of(first))],
        [&](const Travel& travel) { return ask_of(draft.schedule.buckets[travel.what]); },
        [&](const Travel& travel) { return first_use(draft, role, travel); });
  }
}

std::string wait_report(const Draft& draft) {
  std::size_t first = 0;
  std::size_t next_batch = 0;
  std::size_t at_once = 0;
  for (const Bucket& bucket : draft.schedule.buckets) {
    if (bucket.wait == WaitPoint::FirstUse) ++first;
    if (bucket.wait == WaitPoint::BeforeNextBatch) ++next_batch;
    if (bucket.wait == WaitPoint::AtLaunch) ++at_once;
  }
  const std::size_t rest = draft.schedule.buckets.size() - first - next_batch - at_once;
  std::string line =
      counted(first, "bucket") + " at first use, " + std::to_string(rest) + " at end of backward";
  if (next_batch > 0) line += ", " + std::to_string(next_batch) + " before the next batch";
  if (at_once > 0) line += ", " + std::to_string(at_once) + " at launch";
  return line;
}

}  // namespace dovetail::schedule::internal
