// Look-up tables over one ScheduledProgram, what the original Program owes, and the names by which problems call its parts.
//
// Everything is found by id; what a hand-written program names but does not have is a null pointer,
// which check_references reports. The ScheduledProgram must outlive the Index.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/indexed.h"
#include "base/rational.h"
#include "schedule/id_table.h"
#include "schedule/program.h"
#include "schedule/scheduled_program.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dovetail::schedule::verification {

// What a gradient owes, and who writes it.
struct Debt {
  TensorId gradient;
  std::vector<Reduction> reductions;  // over different groups
  // What the optimizer must read is the sum over ranks and micro-steps times this: the product of
  // the reductions' scales, of 1 / degree for each average, and of 1 / k where the Merge averages k
  // micro-steps.
  Rational factor;
  std::vector<OpId> producers;  // its last writer in each micro-step
  std::vector<std::int32_t>
      tied;  // debts of the gradients that an op adds to it (Purpose::TiedWeights)
};

class Index {
 public:
  // `original`: what the user gave, from which the debts are taken; `merge`: how its micro-steps are
  // to be combined. Both must outlive the Index.
  Index(const Program& original, const Merge& merge, const ScheduledProgram& scheduled);

  const Program& original;
  const Merge& merge;
  const ScheduledProgram& scheduled;
  const Program& program;  // of the plan

  // nullptr where the program has none.
  [[nodiscard]] const Op* op(OpId id) const { return ops_.at(id); }
  [[nodiscard]] const Tensor* tensor(TensorId id) const { return tensors_.at(id); }
  [[nodiscard]] const BucketLayout* bucket(BucketId id) const { return buckets_.at(id); }
  [[nodiscard]] const ProcessGroup* group(GroupId id) const { return groups_.at(id); }

  [[nodiscard]] const Indexed<std::int32_t, Debt>& debts() const { return debts_; }
  // Position in debts(), or -1.
  [[nodiscard]] std::int32_t debt_of(TensorId id) const { return debt_of_.at(id); }
  // Whether both are known and the same ranks meet in them, in the same order.
  [[nodiscard]] bool meet_alike(GroupId a, GroupId b) const;
  // 1 / degree over this group.
  [[nodiscard]] Rational average_over(GroupId group) const;
  // How often forward and backward must run: what the Merge asks for, or the original has already.
  [[nodiscard]] std::int32_t owed_micro_steps() const;

  // The stage whose ops the role runs; -1 where its ranks are of several stages.
  [[nodiscard]] std::int32_t stage_of(const RankProgram& role) const;
  // Whether a role of this stage runs the op.
  [[nodiscard]] bool runs(std::int32_t stage, const Op& op) const;

  // "op fc1.forward (c3)", "bucket 0: all-reduce (c15)"
  [[nodiscard]] std::string label(const Command& command) const;
  [[nodiscard]] std::string name(TensorId id) const;

 private:
  [[nodiscard]] std::string op_name(OpId id) const;
  void collect_debts();
  void collect_ties();

  IdTable<OpId, const Op*> ops_{nullptr};
  IdTable<TensorId, const Tensor*> tensors_{nullptr};
  IdTable<BucketId, const BucketLayout*> buckets_{nullptr};
  IdTable<GroupId, const ProcessGroup*> groups_{nullptr};
  Indexed<std::int32_t, Debt> debts_;
  IdTable<TensorId, std::int32_t> debt_of_{-1};
};

std::string bucket_name(BucketId id);

}  // namespace dovetail::schedule::verification
