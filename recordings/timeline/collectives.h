// What each collective of a timeline is: its kind, size, group and message, of the first event that tells (rank_timeline.h has the rule).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/recording.h"
#include "recordings/timeline/rank_timeline.h"

#include <cstdint>
#include <string_view>

namespace dovetail::imports {

// Bytes of one element, by the names that PyTorch and NCCL use; 0: unknown.
std::int64_t element_size(std::string_view dtype);

// REQUIRES: parents, calls and works are known, and which works are collectives.
void describe_collectives(const Recording& trace, RankTimeline& line);

}  // namespace dovetail::imports
