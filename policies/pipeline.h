// A pipeline: every role runs its stages' forward and backward of k micro-batches in a given order,
// and gradients travel among the replicas of one stage.
//
// The Program must have its stages already (pipeline/assign.h). Gradients are grouped as
// source-improved groups them, bounded by a cap in bytes, and no bucket spans two stages. Beside
// which backward a bucket may be launched is decided by the order alone (pipeline/async.h, AS1 to
// AS10); lower enforces it.
//
//   pipeline:kind=1f1b,stages=2    stage 0 launches beside its last backward, stage 1 after it
//
// Refused, with the rule: a Program with another number of stages, micro-batches that the order
// cannot deal out, weights that two stages share.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "policies/policies.h"

namespace dovetail::schedule {

PolicyResult pipeline(const Program& program, const PolicySpec& spec);

}  // namespace dovetail::schedule
