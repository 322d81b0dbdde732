// Decides where a policy folds the factors of averages, and keeps away from places where that
// would change a result.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/scaling.h"

#include <algorithm>
#include <set>

#include "schedule/lower/rewrite/scale.h"

namespace dovetail::schedule {
namespace {

bool owes_a_factor(const Program& program) {
  return std::ranges::any_of(program.reductions, [](const Reduction& reduction) {
    return reduction.op == ReduceOp::Average || reduction.scale != Rational();
  });
}

bool fills_the_loss(const Program& program) {
  return std::ranges::any_of(program.ops, [](const Op& op) {
    return std::holds_alternative<FillLossGradient>(op.effect);
  });
}

}  // namespace

std::optional<std::string> scaling_refusal(const Program& program, ScaleAt at) {
  std::optional<std::string> reason = cannot_fold(program, at);
  if (!reason) return std::nullopt;
  return "scale=" + std::string(to_string(at)) + ": " + *reason;
}

Scaling source_scaling(const Program& program, std::optional<ScaleAt> asked) {
  if (asked) return {*asked, "as asked"};
  if (!owes_a_factor(program)) return {ScaleAt::Collective, "no factors to apply"};
  std::set<std::int64_t> degrees;
  for (const Reduction& reduction : program.reductions) {
    degrees.insert(program.group(reduction.group).size());
  }
  if (degrees.size() == 1) {
    const std::optional<std::string> refusal = cannot_fold(program, ScaleAt::LossGradient);
    if (!refusal) return {ScaleAt::LossGradient, "one degree: into the loss gradient"};
    if (!fills_the_loss(program)) {
      return {ScaleAt::Collective, *refusal + ": the collectives average"};
    }
    return {ScaleAt::AfterCollective, "scale ops stay: " + *refusal};
  }
  const std::optional<std::string> refusal = cannot_fold(program, ScaleAt::Optimizer);
  if (!refusal) return {ScaleAt::Optimizer, "several degrees: into the optimizer"};
  return {ScaleAt::AfterCollective, "several degrees, scale ops stay: " + *refusal};
}

Scaling improved_scaling(const Program& program, std::optional<ScaleAt> asked) {
  if (asked) return {*asked, "as asked"};
  if (!owes_a_factor(program)) return {ScaleAt::Collective, "no factors to apply"};
  const std::optional<std::string> loss = cannot_fold(program, ScaleAt::LossGradient);
  if (!loss) return {ScaleAt::LossGradient, "into the loss gradient"};
  const std::optional<std::string> optimizer = cannot_fold(program, ScaleAt::Optimizer);
  if (!optimizer) return {ScaleAt::Optimizer, "into the optimizer: " + *loss};
  return {ScaleAt::AfterCollective, "once per bucket: " + *loss + "; " + *optimizer};
}

}  // namespace dovetail::schedule
