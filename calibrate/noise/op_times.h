// How long a rank's ops took in steps without communication, with the preemptions of its core taken out.
//
// The sum over a step is what was measured minus what the reference load says was taken meanwhile. Where an
// preemption began is known to half a period only, so an op beside one may come out too short and its
// neighbour too long; no op is left with less than half of its own low quantile, and the next one gives
// what it lacks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/exchange.h"
#include "exec/run.h"
#include "schedule/scheduled_program.h"
#include "traces/disturbances.h"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace dovetail::testbed {

using StepOps = std::map<OpId, Duration>;

// One entry per step. `record` began at `begin_ns`. REQUIRES: the plan runs ops only.
std::vector<StepOps> op_times(const schedule::ScheduledProgram& plan, Rank rank,
                              std::span<const exec::Timing> timings,
                              const traces::CoreRecord& record, std::int64_t begin_ns);

// The same timings, each shorter by what the core was away of it; `record` began at `begin_ns`.
std::vector<exec::Timing> without_preemptions(std::vector<exec::Timing> timings,
                                              const traces::CoreRecord& record,
                                              std::int64_t begin_ns);

// Of all ranks, on every rank: [rank][step]. REQUIRES: all ranks run the same ops.
std::vector<std::vector<StepOps>> share_op_times(const exec::Exchange& exchange,
                                                 const std::vector<StepOps>& mine);

}  // namespace dovetail::testbed
