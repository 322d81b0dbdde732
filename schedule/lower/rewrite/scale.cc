// Folds the factors of averages into ops that can apply them for free (the fill of the loss
// gradient, updates, the last sum), and says what is left for Scale commands.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/rewrite/scale.h"

#include "base/count.h"
#include "base/error.h"
#include "schedule/gradient.h"
#include "schedule/lower/editor.h"
#include "schedule/visit.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace dovetail::schedule {
namespace {

using Refused = std::optional<std::string>;

bool fills_loss(const Op& op) { return std::holds_alternative<FillLossGradient>(op.effect); }

// The factor that all owed gradients share; a reason if they do not.
std::variant<Rational, std::string> common_factor(const Program& program) {
  const OwedFactors owed = owed_factors(program);
  const Reduction* first = nullptr;
  for (const Reduction& reduction : program.reductions) {
    if (first == nullptr) first = &reduction;
    const Rational factor = owed.at(reduction.gradient).total();
    const Rational expected = owed.at(first->gradient).total();
    if (factor == expected) continue;
    return "gradients need different factors: " + program.tensor(first->gradient).name + " " +
           to_string(expected) + ", " + program.tensor(reduction.gradient).name + " " +
           to_string(factor);
  }
  if (first == nullptr) return std::string("no gradient needs a reduction");
  return owed.at(first->gradient).total();
}

// What backward makes of a reduced gradient, other than sums, is in the way of both folds: a factor
// in the optimizer comes too late for it, and one in the loss fill scales only what backward derives
// from the fill, while the gradient is read with the factor that it owes already on it.
Refused refuse_backward_readers(const Program& program) {
  const OwedFactors owed = owed_factors(program);
  IdTable<TensorId, const Op*> reader(nullptr);  // the last one
  for (const Op& op : program.ops) {
    if (op.phase == Phase::Optimizer) continue;
    for (const TensorId id : op.reads) {
      const bool linear = std::holds_alternative<Accumulate>(op.effect);
      if (owed.at(id).owed && !linear) reader[id] = &op;
    }
    // What was read before this write was not the reduced gradient.
    for (const TensorId id : op.writes) reader[id] = nullptr;
  }
  for (const Reduction& reduction : program.reductions) {
    const Op* op = reader.at(reduction.gradient);
    if (op == nullptr) continue;
    return "backward op " + op->name + " reads the reduced gradient " +
           program.tensor(reduction.gradient).name;
  }
  return std::nullopt;
}

Refused refuse_loss(const Program& program) {
  if (std::ranges::none_of(program.ops, fills_loss)) {
    return "no op is known to fill the gradient of the loss";
  }
  const auto factor = common_factor(program);
  if (const auto* reason = std::get_if<std::string>(&factor)) return *reason;
  if (std::get<Rational>(factor) == Rational(1)) return std::nullopt;  // the fill stays as it is
  if (const Refused refused = refuse_backward_readers(program)) {
    return *refused + ": scaling the loss would not scale what it makes of it";
  }
  const std::vector<TensorId> loose = gradients_without_debt(program);
  if (!loose.empty()) {
    return "gradient " + program.tensor(loose.front()).name +
           " needs no reduction, but would be scaled with the others";
  }
  return std::nullopt;
}

// Where an optimizer op keeps its factor on gradients; nothing: it has none.
const Rational* rescale_of(const Op& op) {
  return visit(
      op.effect, [](const Update& update) { return update.rescale ? &*update.rescale : nullptr; },
      [](const ShardUpdate& update) { return update.rescale ? &*update.rescale : nullptr; },
      [](const GlobalNorm& norm) { return &norm.rescale; },
      [](const auto&) -> const Rational* { return nullptr; });
}

void set_rescale(Op& op, Rational value) {
  visit(
      op.effect, [&](Update& update) { update.rescale = value; },
      [&](ShardUpdate& update) { update.rescale = value; },
      [&](GlobalNorm& norm) { norm.rescale = value; },
      [&](auto&) { DOVETAIL_CHECK(false) << op.name << " has no rescale factor"; });
}

// The factor of the owed gradients that an optimizer op reads: none, one, or several.
struct ReadFactors {
  std::optional<Rational> factor;
  bool several = false;
};
ReadFactors read_factors(const Program& program, const Op& op, const OwedFactors& owed) {
  ReadFactors result;
  for (const TensorId id : op.reads) {
    const OwedFactor& debt = owed.at(origin(program.tensor(id)));
    if (!debt.owed) continue;
    if (result.factor && *result.factor != debt.total()) result.several = true;
    result.factor = debt.total();
  }
  return result;
}

Refused refuse_optimizer_op(const Program& program, const Op& op, const OwedFactors& owed) {
  const ReadFactors read = read_factors(program, op, owed);
  if (!read.factor) return std::nullopt;
  if (rescale_of(op) == nullptr) return "optimizer op " + op.name + " has no rescale factor";
  if (read.several) return "optimizer op " + op.name + " reads gradients with different factors";
  const bool mixed = std::ranges::any_of(op.reads, [&](TensorId id) {
    const Tensor& tensor = program.tensor(id);
    return is_gradient(tensor.kind) && !owed.at(origin(tensor)).owed;
  });
  if (mixed) return "optimizer op " + op.name + " also reads gradients that need no reduction";
  return std::nullopt;
}

// P11: the gradients that updates read must be exactly those that are reduced.
Refused refuse_optimizer(const Program& program) {
  const OwedFactors owed = owed_factors(program);
  if (const Refused refused = refuse_backward_readers(program)) {
    return *refused + ": scaling in the optimizer would come too late";
  }
  IdTable<TensorId, char> touched;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::Optimizer) continue;
    if (Refused refused = refuse_optimizer_op(program, op, owed)) return refused;
    for (const TensorId id : op.reads) touched[origin(program.tensor(id))] = 1;
  }
  for (const Reduction& reduction : program.reductions) {
    if (touched.at(reduction.gradient)) continue;
    return "no update reads gradient " + program.tensor(reduction.gradient).name;
  }
  if (program.reductions.empty()) return "no gradient needs a reduction";
  return std::nullopt;
}

std::int64_t fold_into_loss(Program& program) {
  const Rational factor = std::get<Rational>(common_factor(program));
  ProgramEditor editor(std::move(program));
  std::int64_t changed = 0;
  for (const Op& op : editor.program().ops) {
    if (!fills_loss(op)) continue;
    Op scaled = op;
    auto& fill = std::get<FillLossGradient>(scaled.effect);
    fill.value = fill.value * factor;
    editor.replace(std::move(scaled));
    ++changed;
  }
  program = std::move(editor).commit();
  return changed;
}

std::int64_t fold_into_optimizer(Program& program) {
  const OwedFactors owed = owed_factors(program);
  ProgramEditor editor(std::move(program));
  std::int64_t changed = 0;
  for (const Op& op : editor.program().ops) {
    if (op.phase != Phase::Optimizer) continue;
    const ReadFactors read = read_factors(editor.program(), op, owed);
    if (!read.factor) continue;
    Op scaled = op;
    set_rescale(scaled, *rescale_of(op) * *read.factor);
    editor.replace(std::move(scaled));
    ++changed;
  }
  program = std::move(editor).commit();
  return changed;
}

// Puts 1/k into the last accumulate of every owed gradient; `left` loses it.
std::int64_t fold_into_accumulates(Program& program, const OwedFactors& owed,
                                   IdTable<TensorId, Rational>& left) {
  const Rational part(1, program.micro_steps);
  ProgramEditor editor(std::move(program));
  std::map<TensorId, const Op*> last;  // by gradient
  for (const Op& op : editor.program().ops) {
    if (op.phase == Phase::Optimizer || !std::holds_alternative<Accumulate>(op.effect)) continue;
    const Tensor& sum = editor.program().tensor(op.writes.front());
    if (sum.merges && owed.at(*sum.merges).owed) last[*sum.merges] = &op;
  }
  for (const auto& [gradient, op] : last) {
    Op scaled = *op;
    auto& accumulate = std::get<Accumulate>(scaled.effect);
    accumulate.factor = accumulate.factor * part;
    editor.replace(std::move(scaled));
    left[gradient] = left.at(gradient) / part;
  }
  program = std::move(editor).commit();
  return static_cast<std::int64_t>(last.size());
}

Folded folded_into_collectives(Program program, const Schedule& schedule) {
  const OwedFactors owed = owed_factors(program);
  Folded result{.program = {}, .report = {}, .left = IdTable<TensorId, Rational>(Rational(1))};
  const bool averages = schedule.scale == ScaleAt::Collective;
  for (const Reduction& reduction : program.reductions) {
    const OwedFactor& debt = owed.at(reduction.gradient);
    result.left[reduction.gradient] = averages ? debt.scale : debt.total();
  }
  if (averages && program.micro_steps > 1 && schedule.merge.op == ReduceOp::Average) {
    const std::int64_t changed = fold_into_accumulates(program, owed, result.left);
    if (changed > 0) {
      result.report = to_string(Rational(1, program.micro_steps)) + " in the last of " +
                      std::to_string(changed) + " sums";
    }
  }
  if (!averages && !program.reductions.empty()) {
    result.report = "each bucket " + std::string(to_string(schedule.scale));
  }
  result.program = std::move(program);
  return result;
}

}  // namespace

ReduceOp reduce_op(ReduceOp owed, ScaleAt scale) {
  return scale == ScaleAt::Collective ? owed : ReduceOp::Sum;
}

std::optional<std::string> cannot_fold(const Program& program, ScaleAt scale) {
  if (scale == ScaleAt::LossGradient) return refuse_loss(program);
  if (scale == ScaleAt::Optimizer) return refuse_optimizer(program);
  return std::nullopt;
}

std::variant<Folded, Refusal> fold_scaling(Program program, const Schedule& schedule) {
  const bool loss = schedule.scale == ScaleAt::LossGradient;
  if (!loss && schedule.scale != ScaleAt::Optimizer) {
    return folded_into_collectives(std::move(program), schedule);
  }
  if (auto reason = cannot_fold(program, schedule.scale)) return Refusal{*std::move(reason)};
  const std::int64_t changed = loss ? fold_into_loss(program) : fold_into_optimizer(program);
  return Folded{.program = std::move(program),
                .report = "folded into " + counted(changed, loss ? "loss fill" : "optimizer op"),
                .left = IdTable<TensorId, Rational>(Rational(1))};
}

}  // namespace dovetail::schedule
