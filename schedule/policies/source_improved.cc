// source-improved and gradient-merge, which group by a cap (group_by_cap in grouping.cc).
//
// What Paddle's pass should do (column "Ours" of the rules P1 to P31), and gradient merge with it.
//
// One bucket is open per process group, dtype and reduction, so alternating groups fuse (PL5); the
// cap counts bytes (PL4); a bucket may begin anywhere (PL9). A backward op that reads a reduced
// gradient does not close its bucket. It only bounds the launch: no gradient may join that is
// produced at that reader or later, and the compute stream waits before the reader.
//
//   ops, by what they finish    a  b  (reads a)  c  d         cap: three gradients
//   buckets                     a b  closed by reader    c d  closed by end
//
// Each process group has a communication stream, up to max_streams; then they share. Factors go into
// the loss gradient, else the optimizer, else one pass over each bucket (P13, PL8).
//
// gradient-merge groups the same way what travels under its sync point: the gradients of each
// micro-step, or their sums.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/definition.h"

namespace dovetail::schedule {
namespace {

constexpr std::string_view kGroupsBy =
    "one open bucket per process group and dtype, capped in bytes";

}  // namespace

PolicyDefinition source_improved_policy() {
  return {.name = "source-improved",
          .purpose = "the same without its limits; caps count bytes",
          .sizes = {options::cap()},
          .batches = {options::batch(), options::tail()},
          .others = {options::overlap(), options::max_streams()},
          .decide =
              [](Decisions& decisions) {
                decisions.grouping = ByCap{};
                decisions.scaling = ScaleDecision{.rule = ScaleRule::Improved};
              },
          .groups_by = kGroupsBy};
}

PolicyDefinition gradient_merge_policy() {
  return {.name = "gradient-merge",
          .purpose = "k micro-steps before one update",
          .sizes = {options::cap()},
          .batches = {options::batch(), options::tail()},
          .others = {options::overlap()},
          .decide =
              [](Decisions& decisions) {
                decisions.grouping = ByCap{};
                decisions.accumulation = Merge{.micro_steps = 4};
              },
          .grouping = Firmness::Default,
          .groups_by = kGroupsBy,
          .merges = true};
}

}  // namespace dovetail::schedule
