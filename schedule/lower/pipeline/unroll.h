// split_pipeline: a Program with stages becomes what its roles run, micro-batch by micro-batch.
//
// In: forward and backward once, every op with its virtual stage, program.stages = P. Out: every
// micro-batch's forward and backward, in one serial order that is, per role, the order of its
// generator (order.h); the gradients' sums over the micro-batches (merge.h); and a pair of ops for
// each value that crosses roles (transfers.h). P = 2, m = 2, 1F1B, one op per stage and direction:
//
//   stage 0 F@0  send   stage 1 recv F@0 B@0 accumulate send   stage 0 F  send  recv  B@0 ...
//
// - The last micro-batch keeps the ids and names of ops and tensors, so a launch point after an op
//   means the one of the last micro-batch; the others are called "x@0", "x@1", ...
// - Micro-batches are in flight together, so activations (and gradients that only backward reads)
//   are tensors of their own per micro-batch. Owed gradients, and those that the optimizer reads,
//   are shared: one stage runs its micro-batches one after another and adds each to its sum at
//   once.
// - The sums of tied weights' gradients (Purpose::TiedWeights) run once, behind a stage's last backward, on
//   the sums over the micro-batches.
// - Where the order divides backward, each op belongs to one of its passes (weights.h).
// - Every read sees the write that it saw before, in its micro-batch: checked, not assumed.
//
// Ops keep their virtual stage.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/rewrite/rewritten.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

// micro-batches = schedule.merge.micro_steps, order = schedule.pipeline.kind. Refuses, with the
// reason: an order that does not exist for this shape, micro-steps that are unrolled already,
// another map of stages than the order runs on,
// backward that cannot be split where the order splits it, gradients that are to travel in every micro-batch (but
// Sequential can), parameters or gradients that two roles share (tied weights), stages that need a result of a later one, an optimizer op
// over several stages (a global norm).
// REQUIRES: problems(program) is empty.
Rewrite split_pipeline(Program program, const Schedule& schedule);

}  // namespace dovetail::schedule
