// Both ways of playing and the slow reference must give every node of a plan the same times.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/compile.h"

namespace dovetail::sim {

// Plays one graph in order and with rates, contention off, and fails the test unless they agree.
// REQUIRES: the graph needs no rates.
Timeline play_both(const StepGraph& graph);

// Against the reference, on every simulated rank: in both ways where nothing slows anything down,
// else with rates. REQUIRES: costs.distinct_ranks folds nothing.
void expect_reference(const schedule::ScheduledProgram& program, const models::Costs& costs,
                      std::int32_t steps);

}  // namespace dovetail::sim
