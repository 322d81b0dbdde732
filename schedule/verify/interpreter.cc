// Walks over the commands of one role in the order in which the host issues them, and carries the
// symbolic state of its memory from one to the next. What each kind of command does to that state
// is in ops.cc (ops), transfers.cc (collectives, copies, scaling), gathers.cc (sharded parameters)
// and reads.cc (what a reader must find); this file has the walk, the initial state, and the step
// from one training step to the next.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/interpreter.h"

#include "base/interruption.h"
#include "schedule/visit.h"

#include <algorithm>

namespace dovetail::schedule::verification {

Interpreter::Interpreter(const Index& index, const Memory& memory, const LossFactors& losses,
                         const RankProgram& role, std::span<const Completion> completions,
                         std::vector<Problem>& problems)
    : index_(index),
      memory_(memory),
      losses_(losses),
      role_(role),
      completions_(completions),
      problems_(problems),
      order_(index.scheduled, role),
      races_(memory.count()),
      values_(position_of(memory.count())),
      reduced_over_(index.debts().size(), 0),
      other_op_(index.debts().size()),
      read_by_optimizer_(position_of(memory.count()), 0) {
  for (const Debt& debt : index.debts()) {
    SetId groups = 0;
    for (const Reduction& reduction : debt.reductions) {
      groups = groups_.unite(groups, groups_.single(reduction.group.value));
    }
    owed_groups_.push_back(groups);
  }
}

void Interpreter::run() {
  for (const HappensBefore::Unrecorded& wait : order_.unrecorded()) {
    add(ProblemKind::UnrecordedEvent, index_.label(command(wait.command)) + " waits for event e" +
                                          std::to_string(wait.event.value) +
                                          ", which no earlier command records");
  }
  set_initial_values();
  walk_step();
  check_end();
  check_released();
}

void Interpreter::run_second() {
  if (!needs_second_step()) return;
  const auto role = static_cast<std::size_t>(&role_ - index_.scheduled.roles.data());
  order_ = completions_.empty() ? HappensBefore(index_.scheduled, role_, 2)
                                : HappensBefore(index_.scheduled, role, completions_, 2);
  begin_next_step();
  walk_step();
}

const Command& Interpreter::command(std::size_t index) const {
  return role_.commands[index % role_.commands.size()];
}

// Several pieces of one tensor often have the same problem; it is said once.
void Interpreter::add(ProblemKind kind, const std::string& message) {
  const std::string full = in_second_step_ ? "in the next step, " + message : message;
  if (!problems_.empty() && problems_.back().message == full) return;
  problems_.push_back({kind, full});
}

bool Interpreter::is_followed(TensorId tensor) const {
  const Tensor* found = index_.tensor(tensor);
  return index_.debt_of(tensor) >= 0 ||
         (found != nullptr && found->kind == TensorKind::MergedGradient);
}

// Before the first step parameters are whole everywhere, and merged gradients are zero.
void Interpreter::set_initial_values() {
  for (std::int32_t cell = 0; cell < memory_.count(); ++cell) {
    const TensorKind kind = index_.tensor(memory_.tensor_of(cell))->kind;
    if (kind == TensorKind::Parameter) {
      value(cell).state = Value::State::Written;
      value(cell).shard = memory_.is_packed(cell);
    } else if (kind == TensorKind::MergedGradient && !memory_.is_packed(cell)) {
      value(cell).state = Value::State::Zero;
    }
  }
  for (const BucketLayout& bucket : index_.scheduled.buckets) {
    if (bucket.residence == Residence::Shard) leave_shard(bucket.bucket);
  }
}

// Of the bucket's members this rank holds its shard and nothing else.
void Interpreter::leave_shard(BucketId bucket) {
  for (const Place& place : memory_.places(bucket)) {
    for (std::int32_t i = 0; i < place.own.count; ++i) {
      value(place.own.first + i) = {};
      Value& packed = value(place.packed.first + i);
      packed.state = Value::State::Written;
      packed.shard = true;
    }
  }
}

bool Interpreter::needs_second_step() const {
  if (sums_onto_zero_) return true;
  // A collective of the Program that is placed may still be in flight when the next step begins. What a
  // pipeline sends is over by then because of what other roles send back.
  const auto is_placed = [&](const Command& command) {
    const auto* run = std::get_if<Communicate>(&command.action);
    return run != nullptr && run->op && command.stream != kComputeStream;
  };
  const bool knows_others = index_.program.stages == 1 || !completions_.empty();
  if (knows_others && std::ranges::any_of(role_.commands, is_placed)) return true;
  for (const BucketLayout& bucket : index_.scheduled.buckets) {
    for (const Place& place : memory_.places(bucket.bucket)) {
      if (index_.tensor(place.tensor)->kind != TensorKind::Parameter) continue;
      for (std::int32_t i = 0; i < place.own.count; ++i) {
        const Value& own = values_[place.own.first + i];
        if (own.state != Value::State::Written || own.shard) return true;
      }
    }
  }
  return false;
}

// Gradients are of one step; what persists is parameters, states and merged gradients.
void Interpreter::begin_next_step() {
  in_second_step_ = true;
  taken_.clear();
  for (std::int32_t cell = 0; cell < memory_.count(); ++cell) {
    const bool merged = index_.tensor(memory_.tensor_of(cell))->kind == TensorKind::MergedGradient;
    if (value(cell).contributions == 0 || (merged && !memory_.is_packed(cell))) continue;
    value(cell) = {};
  }
}

void Interpreter::walk_step() {
  for (std::size_t i = 0; i < role_.commands.size(); ++i, ++now_) {
    throw_if_interrupted();
    walk();
  }
}

void Interpreter::walk() {
  visit(
      command(now_).action, [&](const RunOp& run) { walk_op(*index_.op(run.op)); },
      [&](const Communicate& run) {
        if (run.op) return walk_op(*index_.op(*run.op));
        walk_collective(run);
      },
      [&](const Copy& copy) { walk_copy(copy); }, [](const RecordEvent&) {},
      [](const WaitEvent&) {}, [&](const Scale& scale) { walk_scale(scale); },
      [&](const Release& release) { walk_release(release); });
}

void Interpreter::touch(std::int32_t cell, Access access) {
  conflicts_.clear();
  const Command& mine = command(now_);
  races_.touch(order_, now_, static_cast<std::size_t>(mine.stream.value), cell, access, conflicts_);
  for (const Conflict& conflict : conflicts_) {
    if (const auto fault = gather_fault(mine, command(conflict.earlier), cell)) {
      add(fault->kind, label() + fault->text);
      continue;
    }
    const bool collective = bucket_collective(mine) != nullptr;
    add(ProblemKind::Race, label() + " is not ordered after the " +
                               (conflict.access == Access::Write ? "write" : "read") + " of " +
                               index_.name(memory_.tensor_of(cell)) +
                               (memory_.is_packed(cell) && !collective ? " in its bucket" : "") +
                               " by " + index_.label(command(conflict.earlier)));
  }
}

void Interpreter::touch(Cells cells, Access access) {
  for (std::int32_t i = 0; i < cells.count; ++i) touch(cells.first + i, access);
}

// Each piece must have been read, reduced, by the optimizer, or else hold its reduced value now.
void Interpreter::check_end() {
  const std::int32_t stage = index_.stage_of(role_);
  for (std::int32_t i = 0; i < index_.debts().end_index(); ++i) {
    const Debt& debt = index_.debts()[i];
    const Op* producer = index_.op(debt.producers.back());
    if (producer == nullptr || !index_.runs(stage, *producer)) continue;
    bool never = false;
    for (const Reduction& reduction : debt.reductions) {
      if (groups_.contains(reduced_over_[i], reduction.group.value)) continue;
      never = true;
      const ProcessGroup* group = index_.group(reduction.group);
      add(ProblemKind::NotReduced, "gradient " + index_.name(debt.gradient) +
                                       " is never reduced over " +
                                       (group == nullptr ? "its group" : group->name));
    }
    if (never) continue;
    const Cells own = memory_.own(debt.gradient);
    for (std::int32_t piece = 0; piece < own.count; ++piece) {
      if (read_by_optimizer_[own.first + piece] != 0) continue;
      if (ends_reduced(debt, piece)) continue;
      add(ProblemKind::NotReduced,
          "gradient " + index_.name(debt.gradient) +
              " is not read by the optimizer and does not end the step as it needs");
    }
  }
}

bool Interpreter::ends_reduced(const Debt& debt, std::int32_t piece) {
  const auto holds = [&](TensorId tensor) {
    const Value& end = value(memory_.own(tensor).first + piece);
    return end.state == Value::State::Written && end.contributions != 0 &&
           !fault_of(end, Rational(), Extent::Whole, index_.program.micro_steps);
  };
  if (holds(debt.gradient)) return true;
  return std::ranges::any_of(index_.program.tensors, [&](const Tensor& tensor) {
    return tensor.merges == debt.gradient &&
           memory_.own(tensor.id).count == memory_.own(debt.gradient).count && holds(tensor.id);
  });
}

}  // namespace dovetail::schedule::verification
