// A predicted Trace whose median step is a steady one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/steady.h"
#include "traces/critical_path.h"
#include "traces/trace.h"

namespace dovetail::cli {

// Steps of a predicted trace, or more where it takes more until they repeat (sim/steady.h). The first
// begins with idle streams, so the median of three is a steady one, which is what plans state.
inline constexpr std::int32_t kTraceSteps = 3;

struct Simulated {
  traces::Trace trace;
  sim::SteadyState steady;
  traces::CriticalPath path;  // of each step of the trace
};

// As many steps as asked for, but from kTraceSteps on enough for the median step to be a steady one.
Simulated simulate_steady(const schedule::ScheduledProgram& program, const models::Costs& costs,
                          std::int32_t steps);

}  // namespace dovetail::cli
