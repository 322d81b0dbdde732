// What each command of a plan is called in traces and reports, simulated and measured alike.
//
//   c12  Compute     "fc2.backward.weight"
//   c14  Enqueue     "enqueue bucket 0"      the record on the compute stream that opens a launch
//                                            stands for all of it
//   c16  Collective  "all-reduce bucket 0"   an op that communicates: its own name
//   c19  Wait        "wait bucket 0"         for an op, as of a pipeline: "wait for stage 1.receive"
// Other records have no description: nothing can be seen of them. The phase is that of the op, and
// Communication for everything that communicates or copies. A wait also names the command before the
// record of its event, and a bucket's collective its launch, its tensors, and the op that wrote each last.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedule/scheduled_program.h"
#include "traces/trace.h"

namespace dovetail::schedule {

// Sorted by id; all roles.
std::vector<traces::CommandInfo> describe_commands(const ScheduledProgram& plan);

}  // namespace dovetail::schedule
