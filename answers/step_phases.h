// How long the phases of one step take on a device, as somebody measures them who waits for the device before the step and records
// an event behind each phase.
//
//   jobs::Phases phases = step_phases(lowered.program, lowered.costs);
//   phases.forward, phases.backward, phases.optimizer;      // add up to phases.step
//
// Of the rank of the first role. Forward ends with its last op, backward with the last op, copy or wait before the first update, as
// DDP and FSDP copy and wait within it; what lies between counts to the later phase.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/costs/costs.h"
#include "models/networks/figures.h"
#include "schedule/scheduled_program.h"

namespace dovetail::predict {

// REQUIRES: the program is legal.
jobs::Phases step_phases(const schedule::ScheduledProgram& program, const models::Costs& costs);

}  // namespace dovetail::predict
