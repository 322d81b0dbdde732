// The simulated machine: plays a ScheduledProgram against Costs and returns the Trace that the real
// machine would give.
//
// Event-driven, integer nanoseconds, deterministic. Models: streams in order, events and waits,
// host dispatch (inline or asynchronous), launch gaps, bucket copies, FIFO per communication
// stream, collectives that move data only once their last rank has arrived, mutual slow-down of
// compute and collectives as rates, several steps in a row. Ranks with equal costs are folded into
// one. It leaves out: sharing of one link by several communication streams, clocks and power,
// jitter.
//
// Three engines, one answer: `simulate` (event loop), `simulate_in_program_order` (one pass, exact
// where contention is off; the fast path), `reference_simulate` (reference.h: slow, direct, the
// judge of both).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/costs.h"
#include "schedule/scheduled_program.h"
#include "traces/trace.h"

#include <cstdint>

namespace dovetail::sim {

struct SimOptions {
  std::int32_t steps = 1;  // >= 1; steps follow each other without a barrier
};

// REQUIRES: the program passed verify (no deadlock, no unknown ids).
traces::Trace simulate(const schedule::ScheduledProgram& program, const models::Costs& costs,
                       const SimOptions& options = {});

}  // namespace dovetail::sim
