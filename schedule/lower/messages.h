// The Program's own communication that leaves the compute stream: the sends and receives between the
// roles of a pipeline, and the collectives that the Schedule places.
//
// Pipeline: one stream per ordered pair of roles, "p2p0-1" from role 0 to role 1, used by both: a send
// never stands in the way of a receive, and messages of one pair are first in, first out on both sides.
// A send follows its producer. A receive starts as soon as the step has begun, so it overlaps what
// is computed before its reader; only where this step has used the tensor already it waits for
// that.
// Placed: on the stream of its placement, behind the last op that writes what it reads or uses what it
// writes. It stays where it stands if that op communicates itself, or if it touches anything but
// activations: what is owed or gathered is waited for there.
// The compute stream waits before it uses what comes or overwrites what goes, else at the end of the
// step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedule/lower/draft.h"

namespace dovetail::schedule::internal {

// Adds the messages to RoleDraft::travels, and adds the streams of pairs to out.streams. Throws InputError for a
// placement that is none.
void place_messages(Draft& draft, RoleDraft& role);

// "14 sends on 6 streams"; empty without any.
std::string message_report(const std::vector<RoleDraft>& roles);

}  // namespace dovetail::schedule::internal
