// By which factor each op's results carry the gradient of the loss.
//
// Backward is linear in the gradient of the loss with which it begins, so everything derived from a
// FillLossGradient op is proportional to its value. An op hands on the common factor of those of its
// inputs that are derived from the loss; inputs with different factors make a sum that means
// nothing, which is reported (WrongScale; PL16: one of several losses was scaled). What an op
// receives from another pipeline stage has the factor with which it was sent: sends and receives of
// one group are matched first come, first served.
//
// Gradients that owe a reduction, and merged gradients, are followed elsewhere (interpreter.h).
// A Program without a FillLossGradient op has the factor 1 everywhere.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verify/index.h"
#include "schedule/verify/verify.h"

#include <optional>
#include <vector>

namespace dovetail::schedule::verification {

class LossFactors {
 public:
  // Appends disagreements to `problems`.
  LossFactors(const Index& index, std::vector<Problem>& problems);

  // Of the loss-derived inputs of the op; nothing where it has none.
  [[nodiscard]] std::optional<Rational> of(OpId op) const { return of_.at(op); }

 private:
  IdTable<OpId, std::optional<Rational>> of_;
};

}  // namespace dovetail::schedule::verification
