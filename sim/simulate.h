// The simulated machine: plays a ScheduledProgram against Costs and returns the Trace that the real
// machine would give.
//
// Event-driven, integer nanoseconds, deterministic. Models: streams in order, events and waits,
// host dispatch (inline or asynchronous), launch gaps, bucket copies, FIFO per communication
// stream, collectives that move data only once their last rank has arrived, mutual slow-down of
// compute and collectives as rates, links that several communication streams share (rates.h), several
// steps in a row, several roles (the stages of a pipeline) that meet in collectives and in sends and
// receives. Ranks with equal costs are folded into one (lanes.h); spans bear the real rank. It leaves
// out: the thread blocks that a collective holds (max_ctas), clocks and power, jitter.
//
// The player is in player.h, what it plays in compile.h. A reference simulator in tests/support, slow and direct, holds
// both to account.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/compile.h"
#include "sim/player.h"
#include "traces/trace.h"

namespace dovetail::sim {

struct SimOptions {
  std::int32_t steps = 1;  // >= 1; steps follow each other without a barrier
};

// REQUIRES: the program passed verify (no deadlock, no unknown ids).
traces::Trace simulate(const schedule::ScheduledProgram& program, const models::Costs& costs,
                       const SimOptions& options = {});

// The same of what has been played: all steps of the graph. REQUIRES: `compiled` is of the program and the costs, the
// timeline of its graph.
traces::Trace trace_of(const schedule::ScheduledProgram& program, const models::Costs& costs,
                       const CompiledProgram& compiled, const Timeline& timeline);

// What a search needs to know about one candidate, without building a Trace. Of one step, in ns; the
// step lasts until its slowest rank ends, whatever its role, and all else is of that rank: of equals
// the first lane. Compute is what runs on stream 0 and is no collective. The step time is the one of
// traces::step_report (tests/sim/steady_test.cc); that of the steady state is found by steady.h.
struct StepSummary {
  std::int64_t step_ns = 0;     // from the end of the step before (or 0) to the end of this one
  std::int64_t exposed_ns = 0;  // a collective in flight and nothing on the compute stream
  std::int64_t communication_ns = 0;
  std::int64_t compute_ns = 0;
  // Nothing on the compute stream, only because the host had not issued its next command: all that the command
  // waits for on the device was there. 0 where hosts are inline.
  std::int64_t host_wait_ns = 0;
  friend bool operator==(const StepSummary&, const StepSummary&) = default;
};
// REQUIRES: the timeline is of the graph.
StepSummary summarize(const StepGraph& graph, const Timeline& timeline, std::int32_t step);
StepSummary summarize(const StepGraph& graph, const Timeline& timeline);  // of the last step

}  // namespace dovetail::sim
