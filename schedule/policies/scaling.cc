// Deciding where factors go.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/scaling.h"

#include <algorithm>
#include <map>
#include <set>

namespace dovetail::schedule {
namespace {

// The product of what each gradient owes, by tensor.
std::map<TensorId, Rational> owed_factors(const Program& program) {
  std::map<TensorId, Rational> factors;
  for (const Reduction& reduction : program.reductions) {
    Rational& factor = factors.try_emplace(reduction.gradient).first->second;
    factor = factor * reduction.scale;
    if (reduction.op != ReduceOp::Average) continue;
    factor = factor / Rational(program.group(reduction.group).size());
  }
  return factors;
}

bool owes_an_average(const Program& program) {
  return std::ranges::any_of(program.reductions, [](const Reduction& reduction) {
    return reduction.op == ReduceOp::Average || reduction.scale != Rational();
  });
}

bool fills_the_loss(const Program& program) {
  return std::ranges::any_of(program.ops, [](const Op& op) {
    return std::holds_alternative<FillLossGradient>(op.effect);
  });
}

std::optional<std::string> loss_refusal(const Program& program) {
  if (!fills_the_loss(program)) return "no op fills the gradient of the loss (P10)";
  const std::map<TensorId, Rational> factors = owed_factors(program);
  for (const auto& entry : factors) {
    if (entry.second == factors.begin()->second) continue;
    return "the gradients owe different factors: " + program.tensor(factors.begin()->first).name +
           " " + dovetail::to_string(factors.begin()->second) + ", " +
           program.tensor(entry.first).name + " " + dovetail::to_string(entry.second) + " (P9)";
  }
  return std::nullopt;
}

std::optional<Rational> rescale_of(const Op& op) {
  if (const auto* update = std::get_if<Update>(&op.effect)) return update->rescale;
  if (const auto* norm = std::get_if<GlobalNorm>(&op.effect)) return norm->rescale;
  return std::nullopt;
}

std::optional<std::string> optimizer_refusal(const Program& program) {
  const std::map<TensorId, Rational> factors = owed_factors(program);
  std::set<TensorId> read;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::Optimizer) continue;
    std::optional<Rational> common;
    for (const TensorId id : op.reads) {
      const auto factor = factors.find(id);
      if (factor == factors.end()) continue;
      if (!rescale_of(op)) return op.name + " has no rescale factor (P9, P11)";
      if (common && *common != factor->second) {
        return op.name + " reads gradients that owe different factors (P11)";
      }
      common = factor->second;
      read.insert(id);
    }
  }
  for (const auto& entry : factors) {
    if (read.contains(entry.first)) continue;
    return "no optimizer op reads " + program.tensor(entry.first).name + " (P11)";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> scaling_refusal(const Program& program, ScaleAt at) {
  if (at == ScaleAt::LossGradient) return loss_refusal(program);
  if (at == ScaleAt::Optimizer) return optimizer_refusal(program);
  return std::nullopt;
}

Scaling source_scaling(const Program& program) {
  if (!owes_an_average(program)) return {ScaleAt::Collective, "no factors to apply"};
  std::set<std::int64_t> degrees;
  for (const Reduction& reduction : program.reductions) {
    degrees.insert(program.group(reduction.group).size());
  }
  if (degrees.size() == 1) {
    const std::optional<std::string> refusal = loss_refusal(program);
    if (!refusal) return {ScaleAt::LossGradient, "one degree: into the loss gradient (P10)"};
    if (!fills_the_loss(program)) {
      return {ScaleAt::Collective, *refusal + ": the collectives average (P5)"};
    }
    return {ScaleAt::AfterCollective, "scale ops stay: " + *refusal + " (P13)"};
  }
  const std::optional<std::string> refusal = optimizer_refusal(program);
  if (!refusal) return {ScaleAt::Optimizer, "several degrees: into the optimizer (P11)"};
  return {ScaleAt::AfterCollective, "several degrees, scale ops stay: " + *refusal + " (P13)"};
}

Scaling improved_scaling(const Program& program) {
  if (!owes_an_average(program)) return {ScaleAt::Collective, "no factors to apply"};
  const std::optional<std::string> loss = loss_refusal(program);
  if (!loss) return {ScaleAt::LossGradient, "into the loss gradient"};
  const std::optional<std::string> optimizer = optimizer_refusal(program);
  if (!optimizer) return {ScaleAt::Optimizer, "into the optimizer: " + *loss};
  return {ScaleAt::AfterCollective, "once per bucket: " + *loss + "; " + *optimizer};
}

}  // namespace dovetail::schedule
