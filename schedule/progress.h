// Whether all roles of a ScheduledProgram can run to the end together.
//
// Plays the roles abstractly: a stream's head proceeds when it is issued, its event is recorded,
// and, for a collective, when it is at the head of the matching stream of every rank in its group.
// What stands still at the end is reported: ranks of a group that meet in different collectives
// (RankMismatch), or streams that wait in a circle (Deadlock).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedule/scheduled_program.h"
#include "schedule/verify.h"

namespace dovetail::schedule {

// Appends to `problems`. REQUIRES: all references of the program are good.
void check_progress(const ScheduledProgram& program, std::vector<Problem>& problems);

}  // namespace dovetail::schedule
