// What the ranks of a predicted step hold over time: parameters from their gather to their release, and of a job the
// activations of its micro-batches and its gradients.
//
//   for (const traces::RankMemory& held : memory_over_time(program, trace, {.step = 1, .stages = memory_of(job)}))
//
//   activations  a forward op of a micro-batch adds its share, by time, of what one keeps (StageMemory::kept); a backward
//                op that writes gradients takes its share off
//   gradients    grow to their sums (StageMemory::sums) with the first micro-batch's backward, and go with the last update
//   gathered     buffers, from where the all-gather begins until they are released
//   rest         all else of the stage's peak, StageMemory::total(), which is where the sum of these is largest: it is
//                not reckoned a second time
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "models/networks/memory.h"
#include "schedule/scheduled_program.h"
#include "traces/rank_memory.h"
#include "traces/trace.h"

namespace dovetail::predict {

struct MemoryOf {
  std::int32_t step = 0;                       // of the trace
  std::vector<jobs::StageMemory> stages = {};  // of the job; empty: not known
};

// A rank of which nothing comes and goes is left out. REQUIRES: the trace is of this program, 0 <= step < trace.steps.
std::vector<traces::RankMemory> memory_over_time(const schedule::ScheduledProgram& program,
                                                 const traces::Trace& trace, const MemoryOf& of);

}  // namespace dovetail::predict
