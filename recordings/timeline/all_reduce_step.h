// A step of which a recording tells kernels and all-reduces, and no operator (Nsight Systems without emit_nvtx): each all-reduce is
// one gradient, ready when the last kernel that was launched before it has ended; medians over the steps. Computation before the first
// gradient stands in forward, what runs beside the last one's reduction in backward, what follows it in the optimizer.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/profile_file.h"
#include "recordings/timeline/rank_set.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace dovetail::imports {

struct AllReduceStepOptions {
  std::vector<Bytes> bytes =
      {};  // of each all-reduce of a step, in launch order; empty: as recorded
  std::optional<std::int64_t> ranks;  // absent: as recorded
};

// Throws InputError where steps differ in their all-reduces, or sizes or ranks are neither given nor recorded.
ImportedStep all_reduce_step(const RankTrace& rank, const AllReduceStepOptions& options);

}  // namespace dovetail::imports
