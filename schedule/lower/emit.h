// The commands of one role, in host issue order.
//
// The ops in program order, and around each:
//   waits (each with the unpack of its bucket), the op, packs of what it produced, releases of what it
//   was the last to read, launches
// A launch is record, wait, collective (a second one for the replicas), scale, record. What has no
// later reader is waited for at the end of the step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/draft.h"

namespace dovetail::schedule::internal {

// Takes command and event ids from the Draft.
RankProgram emit(Draft& draft, const RoleDraft& role);

}  // namespace dovetail::schedule::internal
