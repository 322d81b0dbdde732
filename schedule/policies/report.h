// What became of the gradients of a Schedule, in lines for people (rule P31).
//
//   291 all-reduces fused into 73: 1.32 GiB, padding 3.5 KiB, 12 single gradients apart
//   buckets closed by cap 72, end 1
//
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
