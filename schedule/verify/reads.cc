// What an op must find where it reads a gradient: all micro-steps, reduced over every group that
// the original asks for, times exactly the right factor. The part of the interpreter that words
// each way in which this can fail.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/interpreter.h"
#include "schedule/visit.h"

#include <algorithm>

namespace dovetail::schedule::verification {
namespace {

// The factor that the op itself applies to the gradients that it reads.
Rational rescale_of(const Op& op) {
  return visit(
      op.effect, [](const Opaque&) { return Rational(); },
      [](const FillLossGradient&) { return Rational(); },
      [](const Accumulate&) { return Rational(); }, [](const ZeroFill&) { return Rational(); },
      [](const Update& update) { return update.rescale.value_or(Rational()); },
      [](const ShardUpdate& update) { return update.rescale.value_or(Rational()); },
      [](const GlobalNorm& norm) { return norm.rescale; });
}

}  // namespace

// `own`: the pieces of the tensor; `cells`: where the op reads them, pair by pair.
void Interpreter::check_read(const Op& op, Cells own, Cells cells, Extent extent) {
  const TensorId tensor = memory_.tensor_of(own.first);
  const TensorKind kind = index_.tensor(tensor)->kind;
  const bool sum = sums_gradients(op);
  for (std::int32_t i = 0; i < cells.count; ++i) {
    const Value& found = value(cells.first + i);
    if (kind == TensorKind::Parameter) {
      const bool whole = found.state != Value::State::Unwritten && !found.shard;
      if (!whole && extent == Extent::Whole) {
        add(ProblemKind::ReadBeforeGathered,
            label() + " reads " + index_.name(tensor) + not_gathered(tensor));
      }
    } else if (found.contributions == 0 && found.shard) {
      if (!std::holds_alternative<CollectiveWork>(op.work)) {
        add(ProblemKind::WrongReduction,
            label() + " reads " + index_.name(tensor) + ", which covers only this rank's shards");
      }
    } else if ((is_followed(tensor) || found.contributions != 0) && !sum) {
      if (op.phase == Phase::Optimizer) {
        check_owed_read(op, own.first + i, found, extent);
      } else {
        check_backward_read(op, tensor, found);
      }
    }
  }
}

void Interpreter::check_owed_read(const Op& op, std::int32_t own, const Value& found,
                                  Extent extent) {
  const TensorId tensor = memory_.tensor_of(own);
  const std::string reads = label() + " reads " + index_.name(tensor);
  if (found.state == Value::State::Zero) {
    return add(ProblemKind::MissingMicroStep, reads + ", to which nothing was added");
  }
  if (found.state == Value::State::Unwritten) {
    return add(ProblemKind::ReadBeforeReduced, reads + " before it holds the reduced value");
  }
  if (found.contributions == 0) return;  // a later op of the optimizer made it
  const std::int32_t piece = own - memory_.own(tensor).first;
  for (const Contribution& from : contributions_.members(found.contributions)) {
    const Cells gradient = memory_.own(index_.debts()[from.debt].gradient);
    if (piece < gradient.count) {
      read_by_optimizer_[gradient.first + piece] = 1;
    }
  }
  const Rational rescale = rescale_of(op);
  if (const auto fault = fault_of(found, rescale, extent, index_.program.micro_steps)) {
    for (const Contribution& from : contributions_.members(found.contributions)) {
      OtherOp& other = other_op_[from.debt];
      const Rational total = found.factor * rescale * other.lacks;
      if (fault->kind != ProblemKind::WrongScale || other.message.empty()) continue;
      if (total == index_.debts()[from.debt].factor)
        add(ProblemKind::WrongReduction, other.message);
      other.message.clear();
    }
    add(fault->kind, reads + fault->text);
  }
}

// After the producer of its micro-step, a gradient is read as reduced as it owes; so are its copies
// and sums.
void Interpreter::check_backward_read(const Op& op, TensorId tensor, const Value& found) {
  const bool writes_it = std::ranges::count(op.writes, tensor) > 0;
  if (found.contributions == 0 || writes_it || found.partial) return;
  std::optional<Fault> fault = fault_of(found, Rational(), Extent::Whole, 1);
  // An average over micro-steps may come later, when their gradients are summed.
  if (fault && fault->kind == ProblemKind::WrongScale && index_.program.micro_steps > 1 &&
      !wrong_scale(found, Rational(1, index_.program.micro_steps))) {
    fault.reset();
  }
  const std::string reads = label() + " reads " + index_.name(tensor);
  if (fault) return add(fault->kind, reads + fault->text);
  const std::optional<Rational> loss = losses_.of(op.id);
  if (loss && *loss != Rational()) {
    add(ProblemKind::WrongScale, reads +
                                     ", which is scaled as needed, together with gradients of " +
                                     "the loss times " + to_string(*loss));
  }
}

std::optional<Interpreter::Fault> Interpreter::fault_of(const Value& found, Rational rescale,
                                                        Extent extent, std::int32_t micro_steps) {
  if (found.partial) return Fault{ProblemKind::ReadBeforeReduced, " before its last write"};
  for (const Contribution& from : contributions_.members(found.contributions)) {
    for (const std::int64_t group : groups_.members(owed_groups_[from.debt])) {
      if (groups_.contains(found.groups, group)) continue;
      return Fault{ProblemKind::ReadBeforeReduced, " before it holds the reduced value"};
    }
    const std::int32_t steps = contributions_.micro_steps(from);
    if (steps < micro_steps) {
      return Fault{ProblemKind::MissingMicroStep,
                   ", which holds " + std::to_string(steps) + " of " + std::to_string(micro_steps) +
                       " micro-steps of " + index_.name(index_.debts()[from.debt].gradient)};
    }
  }
  for (const Contribution& from : contributions_.members(found.contributions)) {
    for (const std::int32_t other : index_.debts()[from.debt].tied) {
      if (contributions_.has(found.contributions, other)) continue;
      return Fault{ProblemKind::NotReduced,
                   " without " + index_.name(index_.debts()[other].gradient) +
                       ", the gradient of the same weight on another stage"};
    }
  }
  if (found.shard && extent == Extent::Whole) {
    return Fault{ProblemKind::WrongReduction, ", of which it has only this rank's shard"};
  }
  return wrong_scale(found, rescale);
}

std::optional<Interpreter::Fault> Interpreter::wrong_scale(const Value& found, Rational rescale) {
  const Rational total = found.factor * rescale;
  for (const Contribution& from : contributions_.members(found.contributions)) {
    const Debt& debt = index_.debts()[from.debt];
    if (total == debt.factor) continue;
    return Fault{ProblemKind::WrongScale, " scaled by " + to_string(total) + ", but " +
                                              to_string(debt.factor) + " is needed"};
  }
  return std::nullopt;
}

}  // namespace dovetail::schedule::verification
