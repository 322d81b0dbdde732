// What became of the gradients of a Schedule, in lines for people (rule P31).
//
//   291 all-reduces fused into 73: 1.32 GiB, padding 3.5 KiB, 12 single gradients apart
//   memory beyond gradients and padding: copies 1.32 GiB, sums 0 B (PL24)
//   buckets closed by cap 72, end 1
//
// Bytes are what the collectives move: of the gradients, or of their sums over micro-steps. Copies
// live from the first pack to the last unpack, sums from step to step; a rank holds both in full.
// "291 into 73" counts gradients and buckets; single gradients are buckets of one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace dovetail::schedule {

std::vector<std::string> bucket_report(const Program& program, const Schedule& schedule);

}  // namespace dovetail::schedule
