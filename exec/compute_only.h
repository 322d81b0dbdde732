// A plan's computing alone, for measuring ops and steps that nothing else disturbs.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/scheduled_program.h"

namespace dovetail::exec {

// The plan's ops alone: no collectives, copies, events or communication streams.
schedule::ScheduledProgram without_communication(const schedule::ScheduledProgram& plan);

// The same without the ops that are collectives.
schedule::ScheduledProgram only_computing(const schedule::ScheduledProgram& plan);

}  // namespace dovetail::exec
