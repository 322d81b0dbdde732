// Whether all roles of a ScheduledProgram can run to the end together.
//
// Plays the roles abstractly: a stream's head proceeds when its event is recorded or, where it is
// communication (a bucket's collective, or an op whose work is a collective), when the other roles
// with ranks in the same instance of its group are at the matching head of the same stream: the same
// kind, group, reduction, bytes and dtype, of a bucket with the same members; a send meets a receive.
// What stands still at the end is reported: ranks of a group that meet in different collectives, or
// not at all (RankMismatch), else streams that wait in a circle (Deadlock).
//
// Left out: a SendRecv between ranks of one role, and what a device does with collectives of several
// communicators that it cannot run at the same time.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verify/happens_before.h"
#include "schedule/verify/index.h"
#include "schedule/verify/verify.h"

#include <vector>

namespace dovetail::schedule {

// Appends to `problems`; where nothing is appended, all commands of all roles have completed, in the order
// that it returns. REQUIRES: all references of the program are good.
std::vector<Completion> check_progress(const verification::Index& index,
                                       std::vector<Problem>& problems);

}  // namespace dovetail::schedule
