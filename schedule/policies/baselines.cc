// The policies without a source: one bucket per gradient, one for all, or closed by a threshold; launched
// when ready, after backward, or (naive) on the compute stream.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/definition.h"

namespace dovetail::schedule {
namespace {

PolicyOption cap_or_threshold() {
  PolicyOption option = options::cap();
  option.also = "threshold";
  return option;
}

PolicyOption closes_option() {
  return {"closes", Decision::Grouping,
          [](Decisions& decisions, const typed::Typed& typed) {
            std::get<ByLimits>(*decisions.grouping).closes = typed::word<Closes>(typed);
          },
          [](const Decisions& decisions) {
            return std::string(to_string(std::get<ByLimits>(*decisions.grouping).closes));
          }};
}

}  // namespace

PolicyDefinition naive_policy() {
  return {.name = "naive",
          .purpose = "one collective per gradient on the compute stream: the reference",
          .decide = [](Decisions& decisions) {
            // The naive program reduces, then scales, after each producer (P5).
            decisions.grouping = EachAlone{};
            decisions.scaling = ScaleDecision{.rule = ScaleRule::AfterAverages};
            decisions.placement = BucketPlacement{.launch = LaunchRule::Inline};
          }};
}

PolicyDefinition no_overlap_policy() {
  return {.name = "no-overlap",
          .purpose = "one bucket, after backward",
          .decide = [](Decisions& decisions) {
            decisions.grouping = OneBucket{};
            decisions.placement = BucketPlacement{.launch = LaunchRule::AfterBackward};
          }};
}

PolicyDefinition no_overlap_per_tensor_policy() {
  return {.name = "no-overlap-per-tensor",
          .purpose = "one bucket per gradient, after backward",
          .decide = [](Decisions& decisions) {
            decisions.grouping = EachAlone{};
            decisions.placement = BucketPlacement{.launch = LaunchRule::AfterBackward};
          }};
}

PolicyDefinition per_tensor_policy() {
  return {.name = "per-tensor",
          .purpose = "one bucket per gradient, launched when ready",
          .batches = {options::batch(), options::tail()},
          .decide = [](Decisions& decisions) { decisions.grouping = EachAlone{}; }};
}

PolicyDefinition one_bucket_policy() {
  return {.name = "one-bucket",
          .purpose = "one bucket, launched when its last gradient is ready",
          .batches = {options::batch(), options::tail()},
          .decide = [](Decisions& decisions) { decisions.grouping = OneBucket{}; }};
}

PolicyDefinition threshold_policy() {
  return {.name = "threshold",
          .purpose = "a bucket closes once its bytes reach the threshold",
          .sizes = {cap_or_threshold(), closes_option()},
          .batches = {options::batch(), options::tail()},
          .decide = [](Decisions& decisions) { decisions.grouping = ByLimits{}; }};
}

}  // namespace dovetail::schedule
