// Plays one step from idle streams and finds the end of each phase.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/step_phases.h"

#include <algorithm>

#include "sim/simulate.h"
#include "traces/metrics.h"

namespace dovetail::predict {

jobs::Phases step_phases(const schedule::ScheduledProgram& program, const models::Costs& costs) {
  const traces::Trace trace = sim::simulate(program, costs);
  const Rank rank = trace.spans.front().rank;
  Instant forward, backward, end;
  bool updates = false;  // on the compute stream, whose spans stand in order
  for (const traces::Span& span : traces::spans_of(trace, rank)) {
    const traces::SpanPhase phase = trace.command(span.command).phase;
    const bool is_computing = span.stream == traces::kComputeStream;
    if (phase == traces::SpanPhase::Forward) forward = std::max(forward, span.end);
    if (phase == traces::SpanPhase::Optimizer && is_computing) updates = true;
    const bool is_between = phase == traces::SpanPhase::Communication && is_computing && !updates;
    if (phase == traces::SpanPhase::Backward || is_between) backward = std::max(backward, span.end);
    end = std::max(end, span.end);
  }
  backward = std::max(forward, backward);
  return {.forward = forward - Instant{},
          .backward = backward - forward,
          .optimizer = end - backward,
          .step = end - Instant{}};
}

}  // namespace dovetail::predict
