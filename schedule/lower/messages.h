// The sends and receives between the roles of a pipeline, each on a stream beside the compute stream.
//
// One stream per ordered pair of roles, "p2p0-1" from role 0 to role 1, used by both: a send never
// stands in the way of a receive, and messages of one pair are first in, first out on both sides. A
// send follows its producer, and the compute stream waits for it before it overwrites what is sent,
// else at the end of the step. A receive starts as soon as the step has begun, so it overlaps what is
// computed before its reader; only where this step has used the tensor already it waits for that.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedule/lower/draft.h"

namespace dovetail::schedule::internal {

// Fills RoleDraft::messages and adds their streams to out.streams.
void place_messages(Draft& draft, RoleDraft& role);

// "messages: 14 sends on 6 streams"; empty without any.
std::string message_report(const Draft& draft, const std::vector<RoleDraft>& roles);

}  // namespace dovetail::schedule::internal
