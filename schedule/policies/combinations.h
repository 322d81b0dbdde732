// What cannot be combined, once, with the reason: parsing, planning, `explore` and help ask this table.
//
//   sync=every with sharded updates: each micro-step would add up whole gradients, of which a rank holds
//   only its shard; use sync=last
//
// A row names two features that some policy can have at the same time, however they were typed. That two
// terms decide the same thing is no row: parse_policy refuses it by name. What depends on the Program (a
// norm over all stages, say) is refused where the Program is known.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schedule/policies/policies.h"

namespace dovetail::schedule {

// What a policy has, as far as something else may not stand beside it.
enum class Feature {
  Pipeline,
  OverlappingPipeline,  // in another order than one micro-batch after another
  FirstFit,
  Sharded,
  GathersEachUse,
  GatherLimit,
  GroupsByTimes,
  Inline,
  SeveralStreams,
  ThreeStreams,
  BatchWaits,
  EveryMicroStep,
  SumsAfter
};
constexpr auto words_of(Feature) {
  return words("a pipeline", "a pipeline whose micro-batches overlap", "Paddle's pass",
               "sharded updates", "gathers before each use", "a limit of what is gathered",
               "a grouping by times", "collectives on the compute stream", "several streams",
               "more than two streams", "wait=before-next-batch", "sync=every", "sync=after");
}

bool has(const Policy& policy, Feature feature);

struct Combination {
  Feature one, other;
  std::string_view reason;
};
std::span<const Combination> refused_combinations();

// "sync=every with sharded updates: REASON" of the first row that the policy meets; nothing: it may be.
std::optional<std::string> cannot_combine(const Policy& policy);

}  // namespace dovetail::schedule
