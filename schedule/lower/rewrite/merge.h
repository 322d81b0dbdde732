// merge_micro_steps: forward and backward k times per update, their gradients summed (rules GM).
//
//   forward   fc.forward@0          micro-step 0
//   backward  fc.backward@0
//   backward  w.grad.accumulate@0   w.grad.merged := w.grad
//   forward   fc.forward            micro-step 1, the last: it keeps the ids and the names
//   backward  fc.backward
//   backward  w.grad.accumulate@1   w.grad.merged := w.grad.merged + w.grad
//   optimizer w.update              reads w.grad.merged
//
// - The k-th repetition keeps the original ids, so that a launch point after an op means the op of
//   the last micro-step; the earlier ones get fresh ids. Activations and gradients are one tensor
//   for all repetitions: on one stream each is read before the next repetition overwrites it.
// - Merged: every gradient that the optimizer reads, and every owed one that no op of backward
//   reads after its last write. The sums have the dtype of the Merge (GM5, GML5), and a cast to
//   that dtype between a gradient and the optimizer (an Accumulate that overwrites, factor 1) goes
//   (GM11).
// - Accumulates stand right behind the gradient's last writer in their micro-step (GM6); with
//   SyncPoint::EveryMicroStep at the end of that micro-step's backward (of that stage), because
//   they read reduced gradients, and a bucket is reduced only once all its members are ready.
// - A gradient that its products add to its sum (GemmWork::adds) has Accumulates that move nothing and that no host issues.
// - Nothing is zeroed: the first accumulate overwrites, which is what GM9 step 4 and GMI4 are for,
//   at V bytes of traffic less.
// - The factor 1/k of an average becomes part of the debt: `scale` of the gradient's first
//   reduction is multiplied by it, and the pass of scale.h decides who applies it. Gradients that
//   owe nothing get it in their last accumulate.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/lower/rewrite/rewritten.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

// One micro-step, or as many as the Program has already: returns it unchanged (GMI9, PI10). Refuses
// where backward reads a reduced gradient, which only EveryMicroStep can provide.
// REQUIRES: problems(program) is empty.
Rewrite merge_micro_steps(Program program, const Merge& merge);

// The second half alone, for Programs whose forward and backward are repeated already: micro_steps
// and every op's micro_step are set, every gradient is written in each micro-step. The micro-step
// that writes a gradient first, in program order, overwrites its sum.
Rewrite accumulate_gradients(Program program, const Merge& merge);

// What a bucket holds of a gradient: the gradient if it is reduced in every micro-step (or not
// merged), else its sum. Cost: O(tensors).
TensorId bucketed(const Program& program, TensorId gradient, SyncPoint sync);

}  // namespace dovetail::schedule
