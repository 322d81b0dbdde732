// The gate of the real machine: nothing runs that verify has not proved legal.
//
// `dovetail run` calls it on every plan before it starts or connects a single rank: an illegal plan
// costs no cluster slot, hangs no collective and writes no wrong weights.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/plan_json.h"
#include "schedule/scheduled_program.h"

#include <string_view>

namespace dovetail::exec {

// Throws InputError "NAME: illegal schedule: " and the first problem of schedule::verify, if any.
// `lowered` is what lower made of the plan; what it owes is read from the plan. Afterwards the
// Program within `lowered` owes the same, so that the values that ranks expect of it (cpu/dataflow.h)
// are those of the plan's Program.
// REQUIRES: schedule::problems(plan.program) is empty.
void require_legal(const schedule::Plan& plan, const schedule::ScheduledProgram& lowered,
                   std::string_view name);

}  // namespace dovetail::exec
