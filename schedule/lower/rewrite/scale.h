// fold_scaling: where the factors of averages are applied (rules P9 to P13, ScaleAt of schedule.h).
//
// Every gradient owes 1/degree for each average, times the scale of its reductions, which holds the
// 1/k of averaged micro-steps (factors.h). What the pass does, and what is left to do for the
// buckets:
//
//   ScaleAt           in the Program                          left for Scale        collectives
//   Collective        last accumulate: 1/k                    scale without the 1/k as owed
//   BeforeCollective  nothing                                 everything            sum
//   AfterCollective   nothing                                 everything            sum
//   LossGradient      every loss fill times the common factor nothing               sum
//   Optimizer         every update's rescale times the factor nothing               sum
//
// The check stands before the edit, so a refusal leaves the Program as it was (P11).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/factors.h"
#include "schedule/lower/rewrite/rewritten.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

#include <optional>
#include <string>
#include <variant>

namespace dovetail::schedule {

struct Folded {
  Program program;
  std::string report;  // words on one line; empty: there was nothing to do
  // By gradient (not by its sum): the factor for the Scale commands of its bucket.
  IdTable<TensorId, Rational> left = IdTable<TensorId, Rational>();
};

// REQUIRES: merge_micro_steps ran with schedule.merge.
std::variant<Folded, Refusal> fold_scaling(Program program, const Schedule& schedule);

// The rule in words by which the Program's factors cannot be applied there; nothing: they can. For
// policies, which fall back to scaling each bucket once (P13).
std::optional<std::string> cannot_fold(const Program& program, ScaleAt scale);

// What a collective does with a gradient that owes `owed`: sums are scaled elsewhere.
ReduceOp reduce_op(ReduceOp owed, ScaleAt scale);

}  // namespace dovetail::schedule
