// The gate of the real machine: nothing runs that verify has not proved legal.
//
// `dovetail run` calls it on every plan before it starts or connects a single rank: an illegal plan
// costs no cluster slot, hangs no collective and writes no wrong weights.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/scheduled_program.h"

#include <string_view>

namespace dovetail::exec {

// Throws InputError "NAME: illegal schedule: " and the first problem of schedule::verify, if any.
// REQUIRES: schedule::problems(plan.program) is empty.
void require_legal(const schedule::ScheduledProgram& plan, std::string_view name);

}  // namespace dovetail::exec
