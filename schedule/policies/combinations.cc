// The table, and how a policy is looked up in it: each feature is a question to the decisions, so that a row
// holds for whatever text made them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/combinations.h"

#include <array>

#include "base/error.h"

namespace dovetail::schedule {
namespace {

constexpr std::array kRefused = {
    Combination{Feature::EveryMicroStep, Feature::OverlappingPipeline,
                "in a pipeline gradients travel in the last micro-batch only; use sync=last"},
    Combination{Feature::BatchWaits, Feature::SumsAfter,
                "nothing is launched before the end of backward; use sync=last"},
    Combination{Feature::FirstFit, Feature::Sharded,
                "the pass leaves sharded programs alone (sharding=yes is what it then does)"},
    Combination{Feature::FirstFit, Feature::SeveralStreams,
                "the pass gives each process group one stream of its own"},
    Combination{Feature::Inline, Feature::SeveralStreams,
                "what runs on the compute stream needs no other"},
    Combination{Feature::Inline, Feature::Sharded,
                "the naive program reduces whole gradients, one after another"},
    Combination{Feature::GathersEachUse, Feature::ThreeStreams,
                "gathers and reductions are two kinds of collectives: use streams=2"},
    Combination{Feature::GatherLimit, Feature::Pipeline,
                "how much is gathered at a time depends on how the micro-batches interleave"},
    Combination{Feature::GroupsByTimes, Feature::Pipeline,
                "it follows one gradient-ready order, and each stage has its own"},
};

template <class Alternative>
bool groups(const Policy& policy) {
  return policy.decisions.grouping &&
         std::holds_alternative<Alternative>(*policy.decisions.grouping);
}

}  // namespace

bool has(const Policy& policy, Feature feature) {
  const Decisions& decided = policy.decisions;
  const BucketPlacement place = placement(policy);
  const Merge merge = accumulation(policy);
  switch (feature) {
    case Feature::Pipeline:
      return decided.stages.has_value();
    case Feature::OverlappingPipeline:
      return decided.stages && decided.stages->order != PipelineKind::Sequential;
    case Feature::FirstFit:
      return groups<FirstFit>(policy);
    case Feature::Sharded:
      return decided.sharding.has_value();
    case Feature::GathersEachUse:
      return decided.gathers.has_value();
    case Feature::GatherLimit:
      return decided.gathers && decided.gathers->limit != GatherLimit{};
    case Feature::GroupsByTimes:
      return groups_by_times(policy);
    case Feature::Inline:
      return place.launch == LaunchRule::Inline;
    case Feature::SeveralStreams:
      return place.streams > 1;
    case Feature::ThreeStreams:
      return place.streams > 2;
    case Feature::BatchWaits:
      return place.wait == WaitPoint::BeforeNextBatch;
    case Feature::EveryMicroStep:
      return merge.sync == SyncPoint::EveryMicroStep && (merge.micro_steps > 1 || decided.stages);
    case Feature::SumsAfter:
      return merge.sync == SyncPoint::AfterLastMicroStep && merge.micro_steps > 1;
  }
  DOVETAIL_CHECK(false) << "feature " << static_cast<int>(feature);
  return false;
}

std::span<const Combination> refused_combinations() { return kRefused; }

std::optional<std::string> cannot_combine(const Policy& policy) {
  for (const Combination& row : kRefused) {
    if (!has(policy, row.one) || !has(policy, row.other)) continue;
    return std::string(to_string(row.one)) + " with " + std::string(to_string(row.other)) + ": " +
           std::string(row.reason);
  }
  return std::nullopt;
}

}  // namespace dovetail::schedule
