// The benchmark step as a Program, a Schedule and Costs: the same step through our own front door.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"
#include "tests/support/benchmark_dag.h"

namespace dovetail::support {

struct DagPlan {
  schedule::ScheduledProgram program;
  models::Costs costs;
};

// The buckets are those of the dag; the one optimizer op reads every gradient.
DagPlan plan_of(const BenchmarkDag& dag, std::int32_t ranks);

}  // namespace dovetail::support
