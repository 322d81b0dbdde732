// The interval in which a step's time is expected, from how far measured costs stray.
//
//   const std::optional<StepInterval> interval = step_interval(program, costs);
//   interval->p10 .. interval->p90      of the steady step, over 40 draws
//
// Each draw takes every op and every collective curve at a quantile of its own (models/costs/costs.h), plays
// steps until they repeat, and counts the steady one. Ops stray independently of each other, so the
// interval is narrower than theirs. It tells of what was measured and lies in the costs; of what the
// model leaves out it tells nothing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"

namespace dovetail::sim {

struct StepInterval {
  Duration p10{};
  Duration median{};
  Duration p90{};
  std::int32_t draws = 0;
  friend bool operator==(const StepInterval&, const StepInterval&) = default;
};

struct IntervalOptions {
  std::int32_t draws = 40;  // >= 1
  std::uint64_t seed = 1;
};

// Nothing where no cost has a spread. REQUIRES as simulate.
std::optional<StepInterval> step_interval(const schedule::ScheduledProgram& program,
                                          const models::Costs& costs,
                                          const IntervalOptions& options = {});

}  // namespace dovetail::sim
