// Reads the kind off the buckets, and says it as a policy.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/same_kind.h"

#include <algorithm>
#include <string>

#include "schedule/policies/fsdp.h"
#include "schedule/sharding.h"

namespace dovetail::search {

std::optional<schedule::Policy> searched_like(const schedule::Program& program,
                                              const schedule::Schedule& schedule) {
  if (schedule.merge.micro_steps != 1 || program.stages > 1 || schedule.buckets.empty() ||
      !schedule.collectives.empty()) {
    return std::nullopt;
  }
  const schedule::Bucket& first = schedule.buckets.front();
  const bool is_alike = std::ranges::all_of(schedule.buckets, [&](const schedule::Bucket& bucket) {
    return bucket.collective == first.collective && !bucket.sums_whole &&
           bucket.stream == first.stream && bucket.mode == first.mode &&
           bucket.wait == first.wait && !bucket.replicas && bucket.scope == first.scope &&
           bucket.max_ctas == first.max_ctas &&
           std::ranges::all_of(bucket.gradients, [](const schedule::Slice& slice) {
             return slice == schedule::Slice(slice.tensor);
           });
  });
  if (!is_alike || !std::holds_alternative<schedule::CommStream>(first.stream)) return std::nullopt;
  std::string text = "exact";
  if (schedule.parameters == schedule::ParameterSync::EachUse && is_sharded(schedule)) {
    const schedule::Prefetch ahead = schedule::prefetch_of(program, schedule);
    const bool reshards = std::ranges::any_of(schedule.gathers, [](const auto& gather) {
      return gather.readers == schedule::GatherFor::Backward;
    });
    text = "fsdp:forward=" + std::to_string(ahead.forward) +
           ",backward=" + std::to_string(ahead.backward) + (reshards ? "" : ",reshard=no") +
           "+exact";
  } else if (is_sharded(schedule)) {
    text = "sharded:p=1,gather=" + std::string(to_string(schedule.parameters)) + "+exact";
  }
  schedule::Policy policy = schedule::parse_policy(text);
  schedule::BucketPlacement place = schedule::placement(policy);
  place.mode = first.mode;
  place.wait = first.wait;
  place.scope = first.scope;
  place.max_ctas = first.max_ctas;
  policy = schedule::placed(std::move(policy), place);
  if (schedule.scale != schedule::ScaleAt::Collective) {
    policy.decisions.scaling = schedule::ScaleDecision{.asked = schedule.scale};
  }
  if (policy.decisions.gathers) policy.decisions.gathers->limit = schedule.gather_limit;
  return policy;
}

}  // namespace dovetail::search
