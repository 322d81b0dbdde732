// Which chain of commands made each simulated step as long as it is (traces/critical_path.h).
//
// From the command that ends a step the walk goes to what it waited for last: of its predecessors in the graph the
// one that ended last (of equals the first in issue order), or its host, where that issued it later still. So
// each link begins when its cause ends, and the chain of a step covers the step without a gap:
//
//   s0 BBBBBBBBBB wwwwwwwwwwwwwww O     compute 0..10, transfer of bucket 0 10..25 and of bucket 1 25..40, update 40..45
//   s1           000000000000000111...  chain: B0, bucket 0, bucket 1, update. B1, under bucket 0, is not on it
//
// Where the host issues late, all that is before its issue is its own work from the start of the step: hosts here
// never wait for the device. Cost: the length of the chain. Test: tests/sim/critical_path_test.cc.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/compile.h"
#include "sim/simulate.h"
#include "traces/critical_path.h"
#include "traces/metrics.h"

namespace dovetail::sim {

// REQUIRES: `compiled` is of the program, the timeline of its graph, the windows of their trace.
traces::CriticalPath critical_path(const schedule::ScheduledProgram& program,
                                   const CompiledProgram& compiled, const Timeline& timeline,
                                   std::span<const traces::StepWindow> windows);

struct Explained {
  traces::Trace trace;
  traces::CriticalPath path;
};

// As simulate(), with the critical path of each step.
Explained simulate_and_explain(const schedule::ScheduledProgram& program,
                               const models::Costs& costs, const SimOptions& options = {});

}  // namespace dovetail::sim
