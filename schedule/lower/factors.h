// What every gradient of a Program owes, as exact factors, and which gradients that concerns.
//
// An average over d ranks owes 1/d, a sum owes 1; each reduction also owes its `scale`. A gradient
// that owes several reductions owes the product (PL15). Who applies the factors is a Schedule's
// decision (ScaleAt); the passes of rewrite/ carry it out and verify multiplies along the way.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/rational.h"
#include "schedule/id_table.h"
#include "schedule/program.h"

#include <vector>

namespace dovetail::schedule {

struct OwedFactor {
  bool owed = false;  // whether it owes any reduction
  Rational degrees;   // product of 1 / degree over the averages
  Rational scale;     // product of the reductions' own scales
  [[nodiscard]] Rational total() const { return degrees * scale; }
};

// By gradient.
using OwedFactors = IdTable<TensorId, OwedFactor>;
OwedFactors owed_factors(const Program& program);

// The gradient itself, or the one whose micro-steps it sums.
TensorId origin(const Tensor& tensor);

// Gradients that the optimizer reads, themselves or merged, though they owe nothing, in the order
// of program.tensors. Not among them: sums of owed gradients, formed by Accumulate ops in backward
// (a weight that two layers share), as these carry the factors of their terms.
std::vector<TensorId> gradients_without_debt(const Program& program);

}  // namespace dovetail::schedule
