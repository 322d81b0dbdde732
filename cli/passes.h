// What each pass made of a plan, one line each, with the rule that it follows.
//
//   merge: 8 gradients summed over 4 micro-steps in f32, sync=last   [A19: in the last micro-step]
//   scale: 1/4 in the last of 8 sums                                 [A14: the collectives average]
//   group: 8 all-reduces fused into 2: 30.2 MiB, ...                 [PL4, PL5: one open bucket ...]
//   group: buckets closed by cap 1, end 1                            [...]
//   lay out: 8 gradients in 2 buckets, 30.2 MiB, padding 0 B         [P27: members are views]
//   launch: 0 of 2 collectives before backward ends                  [P15: after its producers]
//   wait: 2 buckets at first use, 0 at end of backward               [PL1: for one event each]
//   emit: 37 commands on 2 streams
//
// The lines are lower's own report; the grouping, which happened before, stands where it belongs.
// Rules are those of the systems that the decisions come from: P the data-parallel pass of Paddle (PL
// its limits that ours does not have), GM its gradient merge, A and AS the sharded Adam and the
// pipelines of Apex (docs/schedules.md).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/lower/pass_line.h"
#include "schedule/plan_json.h"

namespace dovetail::cli {

// REQUIRES: `report` is what lower said of this plan.
std::vector<std::string> describe_passes(const schedule::Plan& plan,
                                         std::span<const schedule::PassLine> report);

}  // namespace dovetail::cli
