// Whether the plan's Program is still the one that the user gave.
//
// Lowering rewrites Programs: it repeats micro-steps, sums their gradients, folds factors, cuts
// updates into shards and inserts sends. What the optimizer must find therefore cannot be read from
// its result. This check holds the result against the original, and against how its micro-steps were
// asked to be combined (Merge):
//   - tensors, groups, world and stages of the original are all there, unchanged; new tensors that
//     merge a gradient have its elements and the Merge's dtype
//   - every gradient needs the original's reductions; with averaged micro-steps their scales multiply
//     to 1/k of the original's
//   - every op of forward and backward is there, once in each micro-step (the last one under its own
//     id, the others as "name@0", "name@1", ...), and every op of the optimizer and every sum of tied weights
//     once, with the same operands: but those read a gradient's sum where there is one, and in a pipeline what
//     is no parameter and needs no reduction may go by a copy of its own per micro-step and stage
//   - an update that is gone is made up for by sharded updates: each element of its gradients once,
//     beside the same element of the parameter that the update would have written, and with all its
//     other operands
//   - a cast to the dtype of the sums may be gone if nothing reads its result
//   - what was added is sums into merged gradients, sharded updates, a pipeline's sends and receives,
//     and the all-reduce of a norm of shards; none of them writes over what the original holds
// Factors (of loss fills, sums, updates) may differ: interpreter.h multiplies them along the way.
// It leaves out the amount of work of an op, and which of two alike copies of a pipeline's
// activation an op reads (schedule/verify/references.h follows those within the plan's own Program).
//
//   program: gradient w.grad needs 1/8 of its sum, but the original needs 1/2
//   program: op fc.backward is missing in micro-step 2
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/verify/index.h"
#include "schedule/verify/verify.h"

#include <vector>

namespace dovetail::schedule::verification {

// Appends to `problems`. False: tensors differ, so that nothing else can be judged. REQUIRES:
// check_layouts found nothing.
bool check_kept(const Index& index, std::vector<Problem>& problems);

}  // namespace dovetail::schedule::verification
