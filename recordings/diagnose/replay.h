// Figures of played steps, defined as for the trace itself, and how far a replay is off what was recorded.
//
//   const step::Timeline own = played(recorded.graph);
//   ReplayError error = replay_error(recorded, own, line);      // error.step 0.001: the replay is 0.1 % longer
//   replayed_steps(recorded, line, own)[2].step
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/diagnose/recorded_graph.h"
#include "recordings/diagnose/traced.h"
#include "sim/graph.h"

#include <vector>

namespace dovetail::diagnose {

step::Timeline played(const step::StepGraph& graph);

struct TimedStep {
  StepFigures figures;
  Duration step{};  // its period (recordings/timeline/step_figures.h)
};

std::vector<TimedStep> replayed_steps(const RecordedGraph& recorded, const RankTimeline& line,
                                      const step::Timeline& timeline);
// The same of the trace itself.
std::vector<TimedStep> recorded_steps(const RankTimeline& line);
// What a step takes: the median.
Duration usual_step(const std::vector<TimedStep>& steps);

// How far the replay of a trace is off it. Shares: 0.01 is 1 %.
struct ReplayError {
  Duration recorded_step{}, replayed_step{};  // sums over steps
  Duration recorded_span{}, replayed_span{};
  Duration recorded_exposed{}, replayed_exposed{};
  double step = 0, span = 0, exposed = 0;
  // Good enough for a what-if: the step within 2 %, exposed within 10 % or 1 % of the step.
  [[nodiscard]] bool is_trustworthy() const;
};
ReplayError replay_error(const RecordedGraph& recorded, const step::Timeline& timeline,
                         const RankTimeline& line);

}  // namespace dovetail::diagnose
