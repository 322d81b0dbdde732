// divide_norms: a global norm over gradients of several pipeline stages.
//
// Each role takes the sum of squares of its own gradients, an all-reduce across the stages adds them up, and
// what a role's optimizer reads of the norm is its own copy:
//
//   norm         over g0 g1   ->   stage 0  norm (g0)         norm.across-stages         over pp
//   g1.update    reads norm        stage 1  norm.stage1 (g1)  norm.stage1.across-stages  over pp
//                                           g1.update reads norm.stage1
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

namespace dovetail::schedule {

// REQUIRES: every op has its stage. A norm whose work cannot be divided, or which another op completes, stays as
// it is, and is refused where the pipeline is split (unroll.h).
Program divide_norms(Program program);

}  // namespace dovetail::schedule
