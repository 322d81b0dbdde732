// Follows the factor of the loss through the Program in its own order, which is a valid serial
// execution: each op hands on the factor of its inputs, and a receive takes that of the send which
// it meets.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/loss_factors.h"

#include "schedule/collective_traits.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace dovetail::schedule::verification {
namespace {

using Factor = std::optional<Rational>;

class Walk {
 public:
  Walk(const Index& index, IdTable<OpId, Factor>& of, std::vector<Problem>& problems)
      : index_(index), of_(of), problems_(problems) {
    const auto stages = static_cast<std::size_t>(std::max(1, index.program.stages));
    memory_.resize(stages);
  }

  void run(const Op& op) {
    IdTable<TensorId, Factor>& memory = memory_[stage(op)];
    Factor factor = inputs(op, memory);
    if (const auto* message = std::get_if<CollectiveWork>(&op.work)) {
      const CollectiveTraits& traits = traits_of(message->kind);
      if (traits.pair) {
        std::deque<Factor>& sent = sent_[{message->group, message->root}];
        if (op.writes.empty()) {
          sent.push_back(factor);
        } else if (!sent.empty()) {
          factor = sent.front();
          sent.pop_front();
        }
      } else if (factor && message->op == ReduceOp::Average && traits.reduces()) {
        factor = *factor * index_.average_over(message->group);
      }
    }
    of_[op.id] = factor;
    if (const auto* fill = std::get_if<FillLossGradient>(&op.effect)) factor = fill->value;
    if (const auto* sum = std::get_if<Accumulate>(&op.effect); sum != nullptr && factor) {
      factor = *factor * sum->factor;
    }
    if (std::holds_alternative<ZeroFill>(op.effect)) factor.reset();
    for (const TensorId id : op.writes) memory[id] = factor;
  }

 private:
  [[nodiscard]] std::size_t stage(const Op& op) const {
    return op.stage < 0 ? 0 : static_cast<std::size_t>(index_.program.role_of(op));
  }

  [[nodiscard]] bool followed_elsewhere(TensorId id) const {
    const Tensor* tensor = index_.tensor(id);
    return index_.debt_of(id) >= 0 || tensor == nullptr ||
           tensor->kind == TensorKind::MergedGradient;
  }

  Factor inputs(const Op& op, const IdTable<TensorId, Factor>& memory) {
    Factor common;
    for (const TensorId id : op.reads) {
      if (followed_elsewhere(id)) continue;
      const Factor factor = memory.at(id);
      if (!factor) continue;
      if (common && *common != *factor) {
        problems_.push_back({ProblemKind::WrongScale,
                             "op " + op.name + " combines gradients of the loss with factors " +
                                 to_string(*common) + " and " + to_string(*factor)});
        return common;
      }
      common = factor;
    }
    return common;
  }

  const Index& index_;
  IdTable<OpId, Factor>& of_;
  std::vector<Problem>& problems_;
  std::vector<IdTable<TensorId, Factor>> memory_;                        // by pipeline stage
  std::map<std::pair<GroupId, std::int32_t>, std::deque<Factor>> sent_;  // by group and sender
};

}  // namespace

LossFactors::LossFactors(const Index& index, std::vector<Problem>& problems) {
  const bool filled = std::ranges::any_of(index.program.ops, [](const Op& op) {
    return std::holds_alternative<FillLossGradient>(op.effect);
  });
  if (!filled) return;
  Walk walk(index, of_, problems);
  for (const Op& op : index.program.ops) {
    if (op.phase != Phase::Optimizer) walk.run(op);
  }
}

}  // namespace dovetail::schedule::verification
