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
#include <vector>

namespace dovetail::exec {

// What the plan's Program owes, reduction by reduction; where its micro-steps are averaged one reduction
// of each gradient has 1 / k. In the plan's own terms, whatever lower makes of them.
std::vector<schedule::Reduction> owed_by(const schedule::Plan& plan);

// Throws InputError "NAME: illegal schedule: " and the first problem of schedule::verify, if any.
// `lowered` is what lower made of the plan; what it owes is read from the plan, and noted in
// `lowered.owed`: the values that ranks expect (exec/values/dataflow.h) come from there.
// REQUIRES: schedule::problems(plan.program) is empty.
void require_legal(const schedule::Plan& plan, schedule::ScheduledProgram& lowered,
                   std::string_view name);

}  // namespace dovetail::exec
