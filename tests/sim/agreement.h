// All engines and the slow reference must give every node of a plan the same times.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/graph.h"

namespace dovetail::sim {

// Plays one graph on the three engines, contention off, and fails the test unless they agree.
Timeline play_all(const Graph& graph);

// Against the reference, on every simulated rank: all three engines where nothing slows anything down,
// else the one with rates. REQUIRES: costs.distinct_ranks folds nothing.
void expect_reference(const schedule::ScheduledProgram& program, const models::Costs& costs,
                      std::int32_t steps);

}  // namespace dovetail::sim
