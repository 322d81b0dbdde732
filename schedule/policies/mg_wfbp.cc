// mg-wfbp and asc-wfbp: neighbours are merged while the link is busy, by times that are known beforehand.
//
// Each gradient's backward time and the start-up time of an all-reduce decide (search/merge_rule.h): search/planner.h has
// both. Gradients are copied into a merged buffer, whose all-reduce is launched once it is full, and step() waits for all
// of them. What comes back are views of that buffer, where mode=copy copies once more. ASC-WFBP merges only what would
// queue; the rest travels beside the all-reduce before it, two at a time.
// Source: HKBU-HPML/MG-WFBP at 507f409, distributed_optimizer.py (Shi et al., INFOCOM 2019); Shi et al., INFOCOM 2021.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/definition.h"

namespace dovetail::schedule {

PolicyDefinition mg_wfbp_policy() {
  return {.name = "mg-wfbp",
          .purpose = "MG-WFBP: merged while the link is busy or a start-up outweighs the wait",
          .decide =
              [](Decisions& decisions) {
                decisions.grouping = ByMerging{};
                decisions.placement =
                    BucketPlacement{.mode = BucketMode::Copy, .wait = WaitPoint::EndOfBackward};
              },
          .groups_by =
              "neighbours that are merged while the link is busy or a start-up outweighs the "
              "wait",
          .compared = false};
}

PolicyDefinition asc_wfbp_policy() {
  return {.name = "asc-wfbp",
          .purpose = "ASC-WFBP: merged while the link is busy, two all-reduces at a time",
          .decide =
              [](Decisions& decisions) {
                decisions.grouping = ByMerging{.merges = Merges::Queued};
                decisions.placement = BucketPlacement{
                    .mode = BucketMode::Copy, .wait = WaitPoint::EndOfBackward, .streams = 2};
              },
          .groups_by = "neighbours that are merged while the link is busy",
          .compared = false};
}

}  // namespace dovetail::schedule
