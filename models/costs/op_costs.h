// What the ops of one Program cost, as a table; ops that lowering makes of them (micro-steps, sums,
// sharded updates) are priced by the rules of op_model.h when they are met.
//
//   OpCosts ops(model, program);
//   ops.time(op, rank);
//   ops.set(op, {.by_class = {us(3), us(4)}});      // a time of one's own, rank by rank
//
// Rank classes: ranks 0 .. rank_classes() - 1 may differ, each is a class of its own; all others are
// like rank 0.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "models/rates/op_model.h"
#include "schedule/id_table.h"
#include "schedule/program.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::models {

// Ops are told apart by id and work: a rewritten op may keep its id.
struct KnownOp {
  OpId id;
  std::string name;  // for reports
  schedule::Work work;
  OpCost cost;
  friend bool operator==(const KnownOp&, const KnownOp&) = default;
};

class OpCosts {
 public:
  OpCosts() = default;
  explicit OpCosts(OpModel model) : model_(std::move(model)) {}
  // Throws InputError when an op of the Program has no duration on this machine.
  OpCosts(OpModel model, const schedule::Program& program);

  [[nodiscard]] Duration time(const schedule::Op& op, Rank rank) const;
  // Throws InputError as OpModel::price does.
  [[nodiscard]] OpCost cost(const schedule::Op& op) const;
  // Whether the op has a place in the table, by its id.
  [[nodiscard]] bool knows(const schedule::Op& op) const { return position_.at(op.id) >= 0; }
  // Of OpCost::host.
  [[nodiscard]] std::optional<Duration> host(const schedule::Op& op) const {
    const OpCost* known = find(op);
    return known == nullptr ? std::nullopt : known->host;
  }
  // Also of an op that was known already. REQUIRES: cost.by_class is not empty.
  void set(const schedule::Op& op, OpCost cost) {
    set(KnownOp{.id = op.id, .name = op.name, .work = op.work, .cost = std::move(cost)});
  }
  void set(KnownOp op);

  [[nodiscard]] const OpModel& model() const { return model_; }
  [[nodiscard]] const std::vector<KnownOp>& known() const { return known_; }
  [[nodiscard]] std::int64_t rank_classes() const;

  friend bool operator==(const OpCosts& a, const OpCosts& b) {
    return a.model_ == b.model_ && a.known_ == b.known_;
  }

 private:
  [[nodiscard]] const OpCost* find(const schedule::Op& op) const;

  OpModel model_;
  std::vector<KnownOp> known_;                          // in the order in which they were set
  schedule::IdTable<OpId, std::int32_t> position_{-1};  // in known_
};

}  // namespace dovetail::models
