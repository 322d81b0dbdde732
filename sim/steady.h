// The steady state of a schedule: how long a step takes once steps follow each other for ever.
//
// The first steps begin with idle streams, and unlike ranks may take turns at being late, so that
// steps differ for ever while their average does not. Therefore more and more steps are played (2, 4,
// 8, ... at most kMostSteps) until the last one repeats an earlier one: every command of it begins and
// ends exactly one shift later (with contention, from 8 steps on: but for the rounding of rates). What a step does
// depends on the steps before it only through when their commands ended, and on when the host issued
// its own. So if, besides, the host needs no more than the shift to issue as many steps, everything
// goes on to repeat itself: with a cycle of one step, or of several. It is enough that this holds for
// the slowest rank: others may shift by less. They gain on it from step to step until they have to
// wait for it, which may take hundreds of steps, but they do not hold it up.
//
//   ends of steps  44.9  80.0  124.9  160.0 ms     cycle 2, one step 40.0 ms on average
//
// A case without a cycle within kMostSteps: the later half is averaged, and `cycle` is 0. There the rank
// that ends last may gain on another one in every step that is played, so that the ends of steps lie
// closer together than the other one's compute takes. Hence the step time is not the distance of those
// ends, but the most by which the end of anything moved per step that the next step waits for, or the issuing of a
// host. It is no shorter than what a rank needs by itself; and where a collective takes the same after any pause
// and nothing contends, no average over more steps is longer, since all ends are maxima of sums of
// earlier ends, and every chain from step to step goes through these. What else moves does not count: with contention
// an op in mid-step may slide in its slack from step to step, and nobody waits for it longer.
// The test: tests/sim/steady_test.cc.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/compile.h"
#include "sim/player.h"
#include "sim/simulate.h"

namespace dovetail::sim {

inline constexpr std::int32_t kMostSteps = 64;

struct SteadyState {
  StepSummary summary;     // of one step, the average of a cycle
  std::int32_t steps = 2;  // that were played
  std::int32_t cycle = 1;  // steps until everything repeats; 0: not found
};

// The same of any graph that can be made of as many steps as asked for, where a graph of more steps begins with that of
// fewer. Leaves the Timeline of the last one in `workspace`.
using GraphOfSteps = std::function<const step::StepGraph&(std::int32_t steps)>;
SteadyState find_steady_state(const GraphOfSteps& graph_of, Workspace& workspace,
                              std::int32_t first = 2);

// Leaves the graph of `steps` steps and its Timeline in `compiled` and `workspace`; memory that they hold
// is used again.
SteadyState find_steady_state(const schedule::ScheduledProgram& program, const models::Costs& costs,
                              CompiledProgram& compiled, Workspace& workspace,
                              std::int32_t first = 2);

// How many steps a trace needs so that most of them are steady; `at_least` if that is more.
std::int32_t steps_to_show(const SteadyState& state, std::int32_t at_least);

}  // namespace dovetail::sim
