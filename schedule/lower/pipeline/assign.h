// assign_stages: splits the model of an ordinary Program over the stages of a pipeline.
//
// Forward ops, in program order, are cut into stages x chunks contiguous parts, so that the largest
// part is as small as possible; work is measured time where every forward op has one, else FLOP,
// else bytes. Everything else follows from the tensors: parameters live where forward reads them;
// backward ops, where their parameter lives, and those without one between their neighbours;
// optimizer ops, where their parameters live; a global norm is divided (norms.h). The world of D ranks
// becomes stages x D: every process group becomes a family with one instance (or as many as it had) per
// stage.
//
//   program mlp  world 2                     stage 0  fc1.forward  fc1.backward  fc1.weight.update
//   assign_stages({.stages = 2})  world 4    stage 1  fc2.forward  fc2.backward  fc2.weight.update
//
// The result is what split_pipeline (unroll.h) takes. Balance is that of forward alone; backward
// costs about twice as much op by op, which leaves the proportions. Leaves out memory: the first
// stages hold the activations of more micro-batches.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "schedule/lower/rewrite/rewritten.h"
#include "schedule/program.h"

namespace dovetail::schedule {

struct StageSplit {
  std::int32_t stages = 1;
  std::int32_t chunks = 1;  // per stage
  StageMap map = StageMap::Loop;
};

// How a Program is split that has its stages already.
StageSplit split_of(const Program& program);

// Refuses, with the reason: fewer forward ops than parts, a Program that has stages or micro-steps
// already, a parameter that forward reads on two stages (tied weights).
// REQUIRES: problems(program) is empty.
Rewrite assign_stages(Program program, StageSplit split);

}  // namespace dovetail::schedule
