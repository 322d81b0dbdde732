// Finding out how many steps it takes, and simulating them.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/steady_trace.h"

#include <utility>

#include "sim/critical_path.h"

namespace dovetail::cli {

Simulated simulate_steady(const schedule::ScheduledProgram& program, const models::Costs& costs,
                          std::int32_t steps) {
  sim::CompiledProgram compiled;
  sim::Workspace workspace;
  const sim::SteadyState steady = sim::find_steady_state(program, costs, compiled, workspace);
  if (steps >= kTraceSteps) steps = sim::steps_to_show(steady, steps);
  sim::Explained explained = sim::simulate_and_explain(program, costs, {.steps = steps});
  return {std::move(explained.trace), steady, std::move(explained.path)};
}

}  // namespace dovetail::cli
