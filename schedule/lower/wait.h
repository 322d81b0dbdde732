// Where the compute stream waits for each collective.
//
// Before the first op behind the launch that touches a member: one that reads the reduced gradient,
// or one that overwrites it (the next micro-step's backward), so no data hazard is left (PL3). Wait
// points ask for more: at the end of backward, before the next batch is launched, or at once. A batch is the
// buckets of one LaunchInBatch, all buckets that are launched after backward, or else one bucket.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "schedule/lower/draft.h"

namespace dovetail::schedule {

inline constexpr std::int32_t kBatchAfterBackward =
    std::numeric_limits<std::int32_t>::min();  // of those launched after backward

// What a bucket asks of where it is waited for. Those that share a batch are waited for together.
struct WaitAsk {
  WaitPoint point = WaitPoint::FirstUse;
  std::optional<std::int32_t> batch = std::nullopt;
};

// Fills the waits of the buckets of one role in one micro-step, which are the travels from `first` on. ask(travel): a WaitAsk;
// first_use(travel): the first op behind its launch that touches a member.
template <class Ask, class FirstUse>
void place_waits(std::span<Travel> travels, std::size_t first, std::size_t after_backward,
                 const Ask& ask, const FirstUse& first_use) {
  for (std::size_t i = first; i < travels.size(); ++i) {
    Travel& travel = travels[i];
    const std::size_t use = first_use(travel);
    travel.wait_before = use;
    const WaitAsk mine = ask(travel);
    if (mine.point == WaitPoint::FirstUse) continue;
    if (mine.point == WaitPoint::AtLaunch) {
      travel.wait_before = std::min(use, *travel.launch_after + 1);
      continue;
    }
    if (mine.point == WaitPoint::BeforeNextBatch) {
      std::size_t next = i + 1;
      while (next < travels.size() && mine.batch && mine.batch == ask(travels[next]).batch) ++next;
      if (next < travels.size()) {
        if (*travels[next].launch_after < use) travel.wait_at_launch = next;
        continue;
      }
    }
    // A bucket may be launched behind backward, too late to be waited for there.
    if (after_backward > *travel.launch_after) travel.wait_before = std::min(use, after_backward);
  }
}

}  // namespace dovetail::schedule

namespace dovetail::schedule::internal {

// Fills the waits of RoleDraft::travels. REQUIRES: they are the buckets, and nothing else yet.
void place_waits(const Draft& draft, RoleDraft& role);

// "2 buckets at first use, 0 at end of backward"
std::string wait_report(const Draft& draft);

}  // namespace dovetail::schedule::internal
