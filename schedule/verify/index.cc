// Fills the look-up tables of the verifier: tensors, ops, buckets and groups by id, and for each
// gradient which reductions the original Program asks for and which op produces it in each
// micro-step.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/index.h"

#include "schedule/visit.h"

#include <algorithm>
#include <map>

namespace dovetail::schedule::verification {

Index::Index(const Program& original_in, const Merge& merge_in,
             const ScheduledProgram& scheduled_in)
    : original(original_in),
      merge(merge_in),
      scheduled(scheduled_in),
      program(scheduled_in.program) {
  ops_.reserve(program.ops.size());
  tensors_.reserve(program.tensors.size());
  for (const Op& op : program.ops) ops_[op.id] = &op;
  for (const Tensor& tensor : program.tensors) tensors_[tensor.id] = &tensor;
  for (const ProcessGroup& group : program.groups) groups_[group.id] = &group;
  for (const BucketLayout& bucket : scheduled.buckets) {
    if (bucket.bucket.value >= 0 && bucket.bucket.value <= kLargestId) {
      buckets_[bucket.bucket] = &bucket;
    }
  }
  collect_debts();
}

void Index::collect_debts() {
  for (const Reduction& reduction : original.reductions) {
    if (debt_of_.at(reduction.gradient) < 0) {
      debt_of_[reduction.gradient] = debts_.push_back({reduction.gradient, {}, Rational(), {}, {}});
    }
    Debt& debt = debts_[debt_of_.at(reduction.gradient)];
    debt.reductions.push_back(reduction);
    debt.factor = debt.factor * reduction.scale;
    if (reduction.op == ReduceOp::Average) {
      debt.factor = debt.factor * average_over(reduction.group);
    }
  }
  const bool averages = merge.op == ReduceOp::Average && owed_micro_steps() != original.micro_steps;
  for (Debt& debt : debts_) {
    if (averages) debt.factor = debt.factor / Rational(owed_micro_steps());
  }
  collect_ties();
  const auto steps = static_cast<std::size_t>(std::max(1, program.micro_steps));
  for (Debt& debt : debts_) debt.producers.assign(steps, OpId{-1});
  for (const Op& op : program.ops) {
    const auto step = static_cast<std::size_t>(op.micro_step);
    if (!is_repeated(op) || step >= steps) continue;
    for (const TensorId id : op.writes) {
      const std::int32_t debt = debt_of(id);
      if (debt >= 0) debts_[debt].producers[step] = op.id;
    }
  }
}

// Gradients that ops of the original add up over one group.
void Index::collect_ties() {
  std::map<GroupId, std::vector<std::int32_t>> ties;
  for (const Op& op : original.ops) {
    const auto* message = std::get_if<CollectiveWork>(&op.work);
    if (message == nullptr || message->purpose != Purpose::TiedWeights) continue;
    const std::int32_t debt = debt_of(op.writes.front());
    if (debt >= 0) ties[message->group].push_back(debt);
  }
  for (const auto& [group, debts] : ties) {
    for (const std::int32_t debt : debts) {
      for (const std::int32_t other : debts) {
        if (other != debt) debts_[debt].tied.push_back(other);
      }
    }
  }
}

std::int32_t Index::owed_micro_steps() const {
  return std::max(original.micro_steps, merge.micro_steps);
}

bool Index::meet_alike(GroupId a, GroupId b) const {
  const ProcessGroup* first = group(a);
  const ProcessGroup* second = group(b);
  if (first == nullptr || second == nullptr) return false;
  return a == b || (first->ranks == second->ranks && first->size() == second->size());
}

Rational Index::average_over(GroupId id) const {
  const ProcessGroup* found = group(id);
  return Rational(1, found == nullptr ? 1 : std::max<std::int64_t>(1, found->size()));
}

std::int32_t Index::stage_of(const RankProgram& role) const {
  if (program.stages <= 1 || role.ranks.empty()) return 0;
  const std::int64_t ranks = std::max<std::int64_t>(1, program.world_size / program.stages);
  const auto stage = [&](Rank rank) { return static_cast<std::int32_t>(rank.value / ranks); };
  const std::int32_t first = stage(role.ranks.front());
  const bool same =
      std::ranges::all_of(role.ranks, [&](Rank rank) { return stage(rank) == first; });
  return same ? first : -1;
}

bool Index::runs(std::int32_t stage, const Op& op) const {
  return program.stages <= 1 || program.role_of(op) == stage;
}

std::string Index::name(TensorId id) const {
  const Tensor* found = tensor(id);
  return found == nullptr ? "tensor " + std::to_string(id.value) : found->name;
}

std::string Index::op_name(OpId id) const {
  const Op* found = op(id);
  return "op " + (found == nullptr ? std::to_string(id.value) : found->name);
}

std::string Index::label(const Command& command) const {
  return visit(
             command.action, [&](const RunOp& run) { return op_name(run.op); },
             [&](const Communicate& run) {
               if (run.op) return op_name(*run.op);
               return bucket_name(*run.bucket) + ": " + std::string(to_string(run.kind));
             },
             [](const Copy& copy) {
               return bucket_name(copy.bucket) +
                      (copy.direction == CopyDirection::Pack ? ": pack" : ": unpack");
             },
             [](const RecordEvent& record) {
               return "record of e" + std::to_string(record.event.value);
             },
             [](const WaitEvent& wait) { return "wait for e" + std::to_string(wait.event.value); },
             [](const Scale& scale) { return bucket_name(scale.bucket) + ": scale"; },
             [](const Release& release) { return bucket_name(release.bucket) + ": release"; }) +
         " (c" + std::to_string(command.id.value) + ")";
}

std::string bucket_name(BucketId id) { return "bucket " + std::to_string(id.value); }

}  // namespace dovetail::schedule::verification
