// Where the iterations of training begin and end in a trace, whatever the profiler was told.
//
//   Iterations found = find_iterations(trace, line, "");
//   found.steps[2].name          "ProfilerStep#5", or "iteration 3"
//   found.accumulation.passes    4: backward passes for one step of the optimizer
//
// Windows are, in this order, the annotations that were asked for by name; ProfilerStep# in any category
// (an annotation since 1.10, an operator before); the whole trace, from the first launch to the last end of GPU work, as
// what the host does before (starting CUDA takes it seconds) and after is of no step. A window is not yet an iteration: a
// profile without step(), or with one step() after a loop, holds many in one. So it is cut where
// another backward pass follows and reduces the same again: behind the optimizer's step that lies between
// them, else before the next launch of forward. What reduces gradients are collectives that hooks of
// AccumulateGrad, or FSDP's function behind a module, launch: those of tensor and expert parallelism do
// not. Passes that reduce nothing (no_sync) belong to the next one that does. A window whose passes do not
// repeat (two models in turn, once) stays whole.
//
// Windows whose numbers are not those of steps that follow each other have a gap between them: the period of the one before is not
// known (step_figures.h).
//
// Where the profiler steps with each micro-step, those up to one that reduces are one step.
//
// A backward pass: autograd's functions, until forward launches kernels again. In a trace without autograd
// (recorded without CPU activity) the kernels with which it begins stand for the begin of an iteration,
// where the same collectives lie between each two of them.
//
// What is incomplete at either end of a trace without windows is left out, and said.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/timeline/rank_timeline.h"

#include <string>
#include <vector>

namespace dovetail::imports {

struct Iterations {
  std::vector<TracedStep> steps;  // never empty; without their works
  bool is_whole_trace = false;    // the only step is the trace
  std::vector<BackwardPass> passes;
  Accumulation accumulation;
  std::vector<std::string> notes;  // how they were found, and what was left out
};

// REQUIRES: `line` has parents, calls, works and described collectives. Throws InputError where no annotation
// has the name that was asked for; it lists those that there are.
Iterations find_iterations(const Recording& trace, const RankTimeline& line,
                           const std::string& asked);

}  // namespace dovetail::imports
