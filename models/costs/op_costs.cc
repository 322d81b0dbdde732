// Looks up the time of an op on a rank; an op that the table does not have, because lowering made
// it, is priced by the rules when it is met.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/op_costs.h"

#include "base/error.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace dovetail::models {
namespace {

Duration on_rank(const OpCost& cost, Rank rank) {
  const auto index = static_cast<std::size_t>(rank.value);
  return cost.by_class[index < cost.by_class.size() ? index : 0];
}

}  // namespace

OpCosts::OpCosts(OpModel model, const schedule::Program& program) : model_(std::move(model)) {
  known_.reserve(program.ops.size());
  for (const schedule::Op& op : program.ops) {
    if (std::holds_alternative<schedule::CollectiveWork>(op.work)) continue;  // Costs::collectives
    set(op, model_.price(op));
  }
}

void OpCosts::set(KnownOp op) {
  DOVETAIL_CHECK(!op.cost.by_class.empty()) << "op " << op.name << " without a time";
  std::int32_t& position = position_[op.id];
  if (position < 0) {
    position = static_cast<std::int32_t>(known_.size());
    known_.push_back(std::move(op));
  } else {
    known_[static_cast<std::size_t>(position)] = std::move(op);
  }
}

const OpCost* OpCosts::find(const schedule::Op& op) const {
  const std::int32_t position = position_.at(op.id);
  if (position < 0) return nullptr;
  const KnownOp& known = known_[static_cast<std::size_t>(position)];
  return known.work == op.work ? &known.cost : nullptr;
}

Duration OpCosts::time(const schedule::Op& op, Rank rank) const {
  const OpCost* known = find(op);
  return known != nullptr ? on_rank(*known, rank) : on_rank(model_.price(op), rank);
}

OpCost OpCosts::cost(const schedule::Op& op) const {
  const OpCost* known = find(op);
  return known != nullptr ? *known : model_.price(op);
}

std::int64_t OpCosts::rank_classes() const {
  std::size_t most = 1;
  for (const KnownOp& op : known_) most = std::max(most, op.cost.by_class.size());
  return static_cast<std::int64_t>(most);
}

}  // namespace dovetail::models
