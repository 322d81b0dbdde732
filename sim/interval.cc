// Draws costs from their spreads, and takes the steady step of each draw.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/interval.h"

#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "sim/disturbed.h"
#include "sim/steady.h"

namespace dovetail::sim {

std::optional<StepInterval> step_interval(const schedule::ScheduledProgram& program,
                                          const models::Costs& costs,
                                          const IntervalOptions& options) {
  DOVETAIL_CHECK(options.draws >= 1) << options.draws;
  if (!costs.has_spread()) return std::nullopt;
  Random random(options.seed);
  CompiledProgram compiled;
  Workspace workspace;
  std::vector<Duration> steps;
  for (std::int32_t draw = 0; draw < options.draws; ++draw) {
    const models::Costs drawn = models::sampled(costs, random);
    steps.emplace_back(find_steady_state(program, drawn, compiled, workspace).summary.step_ns);
  }
  const Figures figures = figures_of(std::move(steps));
  return StepInterval{
      .p10 = figures.early, .median = figures.typical, .p90 = figures.late, .draws = options.draws};
}

}  // namespace dovetail::sim
