// Kernels that may be collectives although no pattern names them, so that nobody is told there is no
// communication because a library's names are not known here.
//
//   for (const LikelyCollectives& likely : likely_collectives(trace, line)) likely.pattern
//
// Names are those of DeepSeek's DeepEP, PyTorch's symmetric memory, vLLM, SGLang and TensorRT-LLM, NVSHMEM,
// and of every library whose name ends in "ccl". Where no name is like that, kernels that were launched
// inside a call of c10d are told.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/timeline/rank_timeline.h"

#include <vector>

namespace dovetail::imports {

// Of the work of `line` that is no collective, by number of kernels, falling.
std::vector<LikelyCollectives> likely_collectives(const Recording& trace, const RankTimeline& line);

}  // namespace dovetail::imports
