// One number that stands for a whole plan, to prove that all ranks hold the same one.
//
// Ranks that disagree on their collectives do not fail, they hang: so they compare before the first
// step. Every field of the ScheduledProgram enters, in a fixed order, through splitmix64.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/exchange.h"
#include "schedule/scheduled_program.h"

#include <cstdint>

namespace dovetail::exec {

std::uint64_t plan_hash(const schedule::ScheduledProgram& plan);

// Throws DeviceError on every rank, naming one that differs from rank 0.
void require_same_plan(const Exchange& exchange, const schedule::ScheduledProgram& plan);

}  // namespace dovetail::exec
