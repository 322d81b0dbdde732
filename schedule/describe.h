// What each command of a plan is called in reports and traces, simulated and measured alike.
//
//   c12  Compute     "fc2.backward.weight"
//   c14  Launch      "enqueue bucket 0"      the record on the compute stream that opens a launch
//                                            stands for all of it
//   c16  Collective  "all-reduce bucket 0"   an op that communicates: its own name
//   c19  Wait        "wait bucket 0"
// Other records have no description: nothing can be seen of them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

enum class CommandKind { Compute, Copy, Collective, Wait, Launch };

struct CommandDescription {
  CommandId id;
  CommandKind kind = CommandKind::Compute;
  std::optional<Phase> phase;  // of ops; absent for everything that communicates or copies
  std::string name;
  std::optional<BucketId> bucket;  // that the command concerns
  Bytes bytes;                     // moved by a collective or copy
};

// Sorted by id; all roles.
std::vector<CommandDescription> describe_commands(const ScheduledProgram& plan);

}  // namespace dovetail::schedule
