// Paddle's data-parallel pass, decision by decision (rules P1 to P31): the baseline.
//
// The pass walks the op list of the synchronous program (P5): each op, then for each gradient that
// it finishes its reduction, and its scale where scaling could not be folded away. One bucket is
// open at a time. A gradient joins it (P19) if process group and dtype are the same and the sum of
// elements stays within the cap; equality is accepted, and an empty bucket accepts anything.
// Otherwise the bucket is closed and the gradient opens the next. Any op that is no reduction and
// has a member among its inputs or outputs closes the bucket too (P22).
//
//   ops, by what they finish    a  b  c  (reads c)  d  e      cap: two gradients
//   buckets                     a b  closed by cap    c  closed by reader    d e  closed by end
//
// Fusion is refused as a whole for higher-order ops (P17, by name), for sharded programs, and where a
// bucket would begin between two gradients of one op, which the pass's own assertion refuses (PL9).
// Then each gradient is reduced alone. Overlap is refused above max_streams process groups (P14); a
// fused program still uses one common stream (P30, PL11).
//
// Where the pass relies on its executor (waits of compute, PL2 and PL13), the Schedule has the waits
// that the pass was designed to have: before the first use, for the whole stream (P16).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedule/policies/policies.h"

namespace dovetail::schedule {

// Adds the buckets, on their streams, to result.schedule, whose scale is decided, and the reasons why a step was
// left out to result.refusals. REQUIRES: the policy's grouping is FirstFit, something is owed.
void apply_first_fit(const Program& program, const Policy& policy,
                     const std::vector<OwedGradient>& owed, PolicyResult& result);

}  // namespace dovetail::schedule
