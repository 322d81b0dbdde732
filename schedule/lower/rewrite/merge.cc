// Repeats forward and backward for every micro-step and adds the sums of their gradients, so that
// what follows sees an ordinary Program with more ops.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/rewrite/merge.h"

#include "base/count.h"
#include "schedule/id_table.h"
#include "schedule/lower/editor.h"
#include "schedule/lower/factors.h"
#include "schedule/lower/rewrite/repeated.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::schedule {
namespace {

// Repeats every op before the optimizer; the ops of the Program become the last repetition.
Program repeat(Program program, std::int32_t times) {
  std::int32_t next = first_unused(program.ops);
  std::vector<Op> ops;
  ops.reserve(program.ops.size() * static_cast<std::size_t>(times));
  for (std::int32_t step = 0; step + 1 < times; ++step) {
    for (const Op& op : program.ops) {
      if (!is_repeated(op)) continue;
      Op& copy = ops.emplace_back(op);
      copy.id = OpId{next++};
      copy.name = repeated_name(op.name, step);
      copy.micro_step = step;
    }
  }
  for (Op& op : program.ops) {
    if (op.phase != Phase::Optimizer) op.micro_step = times - 1;
    ops.push_back(std::move(op));
  }
  program.ops = std::move(ops);
  program.micro_steps = times;
  return program;
}

// Adds the sums to a Program whose micro-steps stand there already.
class Accumulator {
 public:
  Accumulator(Program program, const Merge& merge)
      : editor_(std::move(program)), merge_(merge), owed_(owed_factors(editor_.program())) {}

  Rewrite run() && {
    find_uses();
    drop_casts();
    for (const Tensor& tensor : program().tensors) {
      if (tensor.kind != TensorKind::Gradient) continue;
      if (auto refusal = refuse(tensor)) return *std::move(refusal);
      if (is_merged(tensor.id)) merge_gradient(tensor);
    }
    insert_accumulates();
    redirect_optimizer();
    const std::size_t count = sums_.size();
    const std::string steps = std::to_string(program().micro_steps);
    Program result = std::move(editor_).commit();
    divide_debts(result);
    return Rewritten{.program = std::move(result),
                     .report = counted(count, "gradient") + " summed over " + steps +
                               " micro-steps in " + std::string(to_string(merge_.dtype)) +
                               ", sync=" + std::string(to_string(merge_.sync))};
  }

 private:
  // Positions of the ops that write a gradient, by micro-step, and what reads it afterwards.
  struct Uses {
    std::vector<std::pair<std::int32_t, std::size_t>>
        last_write;                     // of a gradient: micro-step, position of the op
    std::optional<std::size_t> reader;  // in backward, after the last write
    bool in_optimizer = false;          // or by what ties weights
    std::int32_t writes = 0;            // by ops of any phase
  };

  [[nodiscard]] const Program& program() const { return editor_.program(); }

  // Micro-steps rise, nearly: the one that is looked for is among the last.
  static auto last_write(Uses& uses, std::int32_t micro_step) -> decltype(uses.last_write.begin()) {
    const auto found = std::find_if(uses.last_write.rbegin(), uses.last_write.rend(),
                                    [&](const auto& write) { return write.first == micro_step; });
    return found == uses.last_write.rend() ? uses.last_write.end() : std::prev(found.base());
  }

  void find_uses() {
    for (const Tensor& tensor : program().tensors) {
      gradient_[tensor.id] = tensor.kind == TensorKind::Gradient ? 1 : 0;
    }
    for (std::size_t i = 0; i < program().ops.size(); ++i) {
      const Op& op = program().ops[i];
      for (const TensorId id : op.reads) {
        if (!is_repeated(op)) {
          uses_[id].in_optimizer = true;
        } else if (std::ranges::count(op.writes, id) == 0) {
          uses_[id].reader = i;
        }
      }
      for (const TensorId id : op.writes) ++uses_[id].writes;
      if (!is_repeated(op)) continue;
      for (const TensorId id : op.writes) {
        Uses& uses = uses_[id];
        uses.reader.reset();
        if (!gradient_.at(id)) continue;
        const auto known = last_write(uses, op.micro_step);
        if (known == uses.last_write.end()) {
          uses.last_write.emplace_back(op.micro_step, i);
        } else {
          known->second = i;
        }
      }
    }
  }

  // A cast to the dtype of the sums, between an owed gradient and the optimizer.
  void drop_casts() {
    for (std::size_t i = 0; i < program().ops.size(); ++i) {
      const Op& op = program().ops[i];
      const auto* copy = std::get_if<Accumulate>(&op.effect);
      if (copy == nullptr || !copy->overwrite || copy->factor != Rational(1)) continue;
      if (op.reads.size() != 1 || op.writes.size() != 1) continue;
      const TensorId from = op.reads.front();
      const TensorId to = op.writes.front();
      if (!owed_.at(from).owed || program().tensor(to).dtype != merge_.dtype) continue;
      const std::int32_t copies = op.phase == Phase::Optimizer ? 1 : program().micro_steps;
      if (uses_[to].reader || uses_[to].writes != copies || owed_.at(to).owed) continue;
      if (read_twice_in_backward(from, i)) continue;
      editor_.remove(op.id);
      removed_[op.id] = 1;
      casts_[to] = from;
      uses_[from].in_optimizer = true;
      uses_[from].reader.reset();
    }
  }

  // Whether an op of the same micro-step before the optimizer, other than the one at `cast`, reads
  // the gradient after its last write.
  [[nodiscard]] bool read_twice_in_backward(TensorId gradient, std::size_t cast) {
    const std::int32_t step = program().ops[cast].micro_step;
    const auto last = last_write(uses_[gradient], step);
    if (last == uses_[gradient].last_write.end()) return true;
    for (std::size_t i = last->second + 1; i < program().ops.size(); ++i) {
      const Op& op = program().ops[i];
      if (i == cast || !is_repeated(op) || op.micro_step != step) continue;
      if (std::ranges::count(op.reads, gradient) > 0) return true;
    }
    return false;
  }

  // Why the gradient cannot be merged, if so.
  std::optional<Refusal> refuse(const Tensor& gradient) {
    const Uses& uses = uses_[gradient.id];
    if (owed_.at(gradient.id).owed && uses.reader && merge_.sync != SyncPoint::EveryMicroStep) {
      return Refusal{
          "backward op " + program().ops[*uses.reader].name + " reads " + gradient.name +
          " after it is reduced, so it must be reduced in every micro-step; the schedule "
          "says sync=" +
          std::string(to_string(merge_.sync))};
    }
    const auto written = static_cast<std::int32_t>(uses.last_write.size());
    if (is_merged(gradient.id) && written != program().micro_steps) {
      return Refusal{"gradient " + gradient.name + " is written in " + std::to_string(written) +
                     " of " + std::to_string(program().micro_steps) + " micro-steps"};
    }
    return std::nullopt;
  }

  bool is_merged(TensorId gradient) {
    if (casts_.contains(gradient)) return false;
    const Uses& uses = uses_[gradient];
    return uses.in_optimizer || (owed_.at(gradient).owed && !uses.reader);
  }

  void merge_gradient(const Tensor& gradient) {
    const TensorId sum = editor_.new_tensor_id();
    editor_.add_tensor({.id = sum,
                        .name = gradient.name + ".merged",
                        .kind = TensorKind::MergedGradient,
                        .dtype = merge_.dtype,
                        .shape = gradient.shape,
                        .merges = gradient.id});
    sums_[gradient.id] = sum;
    const Bytes read = gradient.bytes();
    const Bytes written = element_size(merge_.dtype) * gradient.numel();
    std::vector<std::pair<std::size_t, std::int32_t>> writers;  // in program order
    for (const auto& [step, position] : uses_[gradient.id].last_write) {
      writers.emplace_back(position, step);
    }
    std::ranges::sort(writers);
    for (std::size_t i = 0; i < writers.size(); ++i) {
      const auto [position, step] = writers[i];
      const Op& writer = program().ops[position];
      const bool first = i == 0;
      const bool pays = i + 1 == writers.size() && pays_average_itself(gradient.id);
      Op op{.id = editor_.new_op_id(),
            .name = gradient.name.empty() ? std::string()
                                          : repeated_name(gradient.name + ".accumulate", step),
            .phase = Phase::Backward,
            .dtype = merge_.dtype,
            .work = MemoryWork{.bytes = first ? read + written : read + written * 2,
                               .flop = Flop(first ? 0 : static_cast<double>(gradient.numel())),
                               .access = gradient.dtype == merge_.dtype ? Access::Plain
                                         : first                        ? Access::Widened
                                                                        : Access::Mixed},
            .reads = {gradient.id},
            .writes = {sum},
            .effect = Accumulate{.overwrite = first,
                                 .factor = pays ? Rational(1, program().micro_steps) : Rational(1)},
            .stage = writer.stage,
            .micro_step = step};
      if (!first) op.reads.push_back(sum);
      if (merge_.sync != SyncPoint::EveryMicroStep && adds_to_sum(writer, gradient)) {
        op.work = MemoryWork{.bytes = Bytes(0), .flop = Flop(0)};  // its products do
        op.issue = Duration{};
      }
      accumulates_.emplace_back(position, std::move(op));
    }
  }

  // Whether the average over micro-steps is no part of any reduction's debt.
  [[nodiscard]] bool pays_average_itself(TensorId gradient) {
    if (merge_.op != ReduceOp::Average) return false;
    if (!loose_) {
      loose_.emplace();
      for (const TensorId id : gradients_without_debt(program())) (*loose_)[id] = 1;
    }
    return loose_->at(gradient) != 0;
  }

  void insert_accumulates() {
    if (merge_.sync == SyncPoint::EveryMicroStep) {
      std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> ends;  // (micro-step, stage)
      for (std::size_t i = 0; i < program().ops.size(); ++i) {
        const Op& op = program().ops[i];
        if (op.phase == Phase::Backward && is_repeated(op)) ends[{op.micro_step, op.stage}] = i;
      }
      std::ranges::stable_sort(accumulates_, {}, &std::pair<std::size_t, Op>::first);
      for (auto& [position, op] : accumulates_) {
        const auto end = ends.find({op.micro_step, op.stage});
        if (end != ends.end()) position = std::max(position, end->second);
      }
    }
    for (auto& [position, op] : accumulates_) {
      editor_.insert_one_after(program().ops[position].id, std::move(op));
    }
  }

  // The optimizer reads (and clips in place) the sums, and pays for their width; so does what ties weights.
  void redirect_optimizer() {
    for (const Op& op : program().ops) {
      if (is_repeated(op) || removed_.contains(op.id)) continue;
      Op redirected = op;
      for (auto* list : {&redirected.reads, &redirected.writes}) {
        for (TensorId& id : *list) {
          const auto cast = casts_.find(id);
          const auto sum = sums_.find(cast == casts_.end() ? id : cast->second);
          if (sum == sums_.end()) continue;
          widen(redirected, program().tensor(id));
          id = sum->second;
        }
      }
      if (redirected != op) editor_.replace(std::move(redirected));
    }
  }

  // A sum in place of this tensor: the same elements in another dtype.
  void widen(Op& op, const Tensor& read) const {
    auto* message = std::get_if<CollectiveWork>(&op.work);
    if (message != nullptr && message->purpose == Purpose::TiedWeights) {
      message->bytes = element_size(merge_.dtype) * read.numel();
      op.dtype = merge_.dtype;
    }
    auto* work = std::get_if<MemoryWork>(&op.work);
    if (work == nullptr) return;
    const Bytes more = element_size(merge_.dtype) * read.numel() - read.bytes();
    work->bytes = std::max(Bytes(0), work->bytes + more);
  }

  // The factors of a gradient's reductions multiply, so one of them takes 1/k.
  void divide_debts(Program& result) const {
    if (merge_.op != ReduceOp::Average) return;
    IdTable<TensorId, char> divided;
    for (Reduction& reduction : result.reductions) {
      if (divided.at(reduction.gradient)) continue;
      divided[reduction.gradient] = 1;
      reduction.scale = reduction.scale / Rational(result.micro_steps);
    }
  }

  ProgramEditor editor_;
  const Merge& merge_;
  OwedFactors owed_;
  IdTable<TensorId, char> gradient_{0};
  IdTable<TensorId, Uses> uses_;
  std::map<OpId, char> removed_;
  std::map<TensorId, TensorId> casts_;                   // result of a dropped cast -> the gradient
  std::map<TensorId, TensorId> sums_;                    // gradient -> merged gradient
  std::vector<std::pair<std::size_t, Op>> accumulates_;  // behind the op at this position
  std::optional<IdTable<TensorId, char>> loose_;
};

}  // namespace

Rewrite merge_micro_steps(Program program, const Merge& merge) {
  if (merge.micro_steps < 1) {
    return Refusal{std::to_string(merge.micro_steps) + " micro-steps: at least one is needed"};
  }
  if (merge.micro_steps == 1 || program.micro_steps == merge.micro_steps) {
    return Rewritten{.program = std::move(program), .report = {}};
  }
  if (program.micro_steps != 1) {
    return Refusal{"the program has " + std::to_string(program.micro_steps) +
                   " micro-steps already, the schedule asks for " +
                   std::to_string(merge.micro_steps)};
  }
  return accumulate_gradients(repeat(std::move(program), merge.micro_steps), merge);
}

Rewrite accumulate_gradients(Program program, const Merge& merge) {
  return Accumulator(std::move(program), merge).run();
}

TensorId bucketed(const Program& program, TensorId gradient, SyncPoint sync) {
  if (sync == SyncPoint::EveryMicroStep) return gradient;
  for (const Tensor& tensor : program.tensors) {
    if (tensor.merges == gradient) return tensor.id;
  }
  return gradient;
}

}  // namespace dovetail::schedule
