// The quick walk of a candidate: one jump per bucket over prefix sums of the compute stream.
//
// Where collectives go at one rate whatever computes, the end of one is known when it begins. So the
// communication of one stream is, at any moment, a horizon: what has been launched is in flight without
// a break until then. Compute goes at its rate beside a transfer until the horizon, then at full rate:
//
//   compute  | ops at the slow rate   | op cut in two | full rate ...  | next launch
//   comm0    |====== in flight =======|               (idle)
//                                     ^ horizon
//
// Both rates have prefix sums, so a jump costs one subtraction, or a binary search where the horizon
// lies within it. An op that the horizon cuts keeps its exact remainder in 2^-20 ns (sim/player.cc),
// so nothing is rounded that the simulator does not round.
//
// The state before each launch is kept by `settle`: a candidate that differs from bucket k on starts
// there. The walk gives one step that begins with idle streams and a host far ahead. All buckets are
// waited for within the step, so the next one begins in the same state, but for
//   - the pause before the first collective, which decides its duration: it must not matter;
//   - the host, which must issue a step in less time than the device takes, by enough to be ahead
//     within half of sim::kMostSteps.
// Otherwise the walk gives nothing and full_walk.h has to be asked.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "search/step_data.h"
#include "sim/simulate.h"
#include "sim/steady.h"

namespace dovetail::search {

// Where the walk stands: before a launch, at the end of a compute node.
struct QuickState {
  std::int64_t now = 0;
  std::int64_t horizon = 0;   // end of the last transfer launched so far
  std::int64_t last_end = 0;  // the same: of the gap before the next
  std::int64_t communication = 0;
  std::int64_t overlapped = 0;  // of it: a compute node, behind its launch gap, was running
  std::int64_t computed = 0;    // by nodes that count as compute
  std::int32_t node = 0;        // next of the NodeTable
  std::int32_t launch = 0;      // op behind which the last bucket was launched
  std::int32_t cut = 0;         // bucket whose end is the next to be looked at for a cut producer
  std::int32_t extra_packs = 0;
  std::int32_t wait = 0;  // the op before which the compute stream waits for the last bucket
  // A bucket is waited for earlier than one launched before it, or with its whole stream.
  bool waits_differ = false;
};

struct QuickMemory {
  std::vector<QuickState> states;  // of the settled candidate: before each bucket
  std::vector<std::int64_t> done;  // ... and when each bucket is done
  // Of its first collective: the start, and by how much its duration can depend on the pause before.
  std::int64_t first_start = 0;
  std::int64_t first_spread = 0;
  std::vector<std::int64_t> changed;  // when each bucket of a change is done
  struct Wait {
    std::int32_t place = 0;  // the op before which it stands
    std::int32_t bucket = 0;
  };
  std::vector<Wait> order;  // of the waits
};

// Whether the machine and the candidate, from bucket `first` on, are of the kind that the quick walk
// handles. REQUIRES: the buckets before it are.
bool is_quick(const StepData& data, std::span<const BucketChoice> choices, std::size_t first);

// Walks from bucket `first` on; those before it are as in the settled candidate. Keep::Yes settles.
std::optional<sim::StepSummary> quick_walk(const StepData& data,
                                           std::span<const BucketChoice> choices, std::size_t first,
                                           Keep keep, PriceMemo& prices, QuickMemory& memory);

}  // namespace dovetail::search
