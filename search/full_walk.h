// The full walk of a candidate: any streams, modes and orders, with rates, and hosts that limit.
//
// Between two events of the communication streams (in_flight.h) the ops of the compute stream run at
// rates that do not change, so they are taken together: by a difference of prefix sums where the rate
// is one of two that are known beforehand (no collective in flight, or one that takes no processor
// time), else op by op. An op that an event cuts keeps its exact remainder.
//
//   walk_one_step   One step that begins with idle streams and a host far ahead, as in quick_walk.h: by
//                   the same argument all later ones are equal, where neither the pause before the first
//                   collective of a stream nor the host matters. With Keep::Yes the state before each
//                   launch is kept: a candidate that differs from bucket k on starts there, and ends
//                   where, with the same buckets to come, all stands as it did then but for a shift
//                   in time: what follows is shifted as well.
//   walk_steps      Step after step, with the host, until one repeats the one before it: the streams
//                   stand as they did a step ago, as seen from its end, and the host either stands as it
//                   did or held nothing back and needs no more time for a step than the device. From then
//                   on all are equal (sim/steady.h). Not found within sim::kMostSteps: nothing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "search/in_flight.h"
#include "search/kept_walk.h"
#include "search/step_data.h"
#include "sim/simulate.h"
#include "sim/steady.h"

namespace dovetail::search {

struct FullMemory {
  // Of the candidate that is walked.
  std::vector<std::int32_t> owner;  // [gradient]: its bucket, if any bucket is copied
  std::vector<Wait> waits;          // in order of place, then launch
  std::vector<char> waited;         // [bucket]: for its event
  std::vector<std::int64_t> done;   // [bucket]: its end, or kNever
  std::vector<BucketTimes> times;
  std::vector<BucketTimes> at_once;  // [bucket]: of a host far ahead
  sim::LinkShares shares{0};
  RateMemo rates;
  std::array<StreamState, kMostStreams> streams;
  bool rejoined = false;  // the last walk ended where the settled one went on alike
  KeptWalk kept;
};

// Walks from bucket `first` on; those before it are as in the settled candidate. Keep::Yes settles.
// REQUIRES: as StepModel::evaluate.
std::optional<sim::StepSummary> walk_one_step(const StepData& data,
                                              std::span<const BucketChoice> choices,
                                              std::size_t first, Keep keep, PriceMemo& prices,
                                              FullMemory& memory);
std::optional<sim::StepSummary> walk_steps(const StepData& data,
                                           std::span<const BucketChoice> choices, PriceMemo& prices,
                                           FullMemory& memory);

}  // namespace dovetail::search
