// After which op each collective is issued.
//
// A bucket is ready after the last op that writes one of its members. It is issued there, or later
// if its launch point says so (after an op, after backward, when its whole batch is ready), if the
// sums of micro-steps are to travel after the last backward, or if its pipeline stage must not
// communicate beside that backward; and never before the bucket that the Schedule lists before it.
// Where the gradients of every micro-step are reduced, this holds within each micro-step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/draft.h"

namespace dovetail::schedule::internal {

// Adds the buckets to RoleDraft::travels but for their waits, in launch order.
void place_launches(const Draft& draft, RoleDraft& role);

// "3 of 4 collectives before backward ends"
std::string launch_report(const std::vector<RoleDraft>& roles);

}  // namespace dovetail::schedule::internal
