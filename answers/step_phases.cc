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
  for (const traces::Span& span : traces::spans_of(trace, rank)) {
    const traces::SpanPhase phase = trace.command(span.command).phase;
    if (phase == traces::SpanPhase::Forward) forward = std::max(forward, span.end);
    if (phase == traces::SpanPhase::Backward) backward = std::max(backward, span.end);
    end = std::max(end, span.end);
  }
  backward = std::max(forward, backward);
  return {.forward = forward - Instant{},
          .backward = backward - forward,
          .optimizer = end - backward,
          .step = end - Instant{}};
}

}  // namespace dovetail::predict
