// What one rank's commands name: the ops that it runs and the buckets that it keeps.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/program.h"
#include "schedule/scheduled_program.h"

#include <set>
#include <string_view>
#include <vector>

namespace dovetail::exec {

struct RankWork {
  std::vector<const schedule::Op*> ops;  // of plan.program, in the order of the commands
  std::set<BucketId> buckets;            // of collectives, copies, scales and sharded updates
};

// Throws InputError for timed work, which only the simulator can play. `backend` is who says so: "cuda".
void require_executable(const schedule::Program& program, std::string_view backend);

// REQUIRES: the plan is legal, and the returned pointers do not outlive it.
RankWork work_of(const schedule::ScheduledProgram& plan, Rank rank);

}  // namespace dovetail::exec
