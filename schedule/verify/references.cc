// Checks that the commands of a role name only ops, buckets, groups and tensors that exist, and
// that each op reads from the same writer as in the Program's own order.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/references.h"

#include "schedule/visit.h"

#include <algorithm>
#include <set>
#include <unordered_set>

namespace dovetail::schedule::verification {
namespace {

class ReferenceCheck {
 public:
  ReferenceCheck(const Index& index, const RankProgram& role, std::vector<Problem>& problems)
      : index_(index), role_(role), problems_(problems) {}

  bool check() {
    const std::size_t before = problems_.size();
    if (index_.stage_of(role_) < 0) {
      at_ = "rank " + std::to_string(role_.ranks.front().value);
      bad(" plays a role with ranks of other pipeline stages");
    }
    for (const Command& command : role_.commands) check(command);
    return problems_.size() == before;
  }

 private:
  void bad(const std::string& what) {
    problems_.push_back({ProblemKind::BadReference, at_ + what});
  }

  void check(const Command& command) {
    at_ = "c" + std::to_string(command.id.value);
    if (!ids_.insert(command.id).second) bad(": this command id is used twice");
    const auto streams = static_cast<std::int32_t>(index_.scheduled.streams.size());
    if (command.stream.value < 0 || command.stream.value >= streams) bad(" names no stream");
    visit(
        command.action, [&](const RunOp& run) { check_run(run.op, command.action); },
        [&](const Communicate& run) {
          if (run.op) return check_run(*run.op, command.action);
          if (!run.bucket) return bad(" communicates neither a bucket nor what an op says");
          check_bucket(*run.bucket);
          check_group(run.group);
        },
        [&](const Copy& copy) { check_copy(copy); },
        [&](const RecordEvent& record) {
          if (!recorded_.insert(record.event).second) {
            bad(" records e" + std::to_string(record.event.value) + " a second time");
          }
        },
        [](const WaitEvent&) {}, [&](const Scale& scale) { check_bucket(scale.bucket); },
        [&](const Release& release) { check_release(release); });
  }

  void check_release(const Release& release) {
    check_bucket(release.bucket);
    const BucketLayout* bucket = index_.bucket(release.bucket);
    if (bucket == nullptr || bucket->residence == Residence::Shard) return;
    bad(" releases " + bucket_name(release.bucket) + ", which a rank keeps whole");
  }

  void check_bucket(BucketId id) {
    if (index_.bucket(id) == nullptr) bad(" names the unknown " + bucket_name(id));
  }

  void check_group(GroupId id) {
    const ProcessGroup* group = index_.group(id);
    if (group == nullptr)
      return bad(" names the unknown process group " + std::to_string(id.value));
    if (!groups_.insert(id).second) return;
    const std::set<Rank> members(group->ranks.begin(), group->ranks.end());
    const auto outside =
        std::ranges::find_if_not(role_.ranks, [&](Rank rank) { return members.contains(rank); });
    if (outside != role_.ranks.end()) {
      bad(" communicates over " + group->name + ", to which rank " +
          std::to_string(outside->value) + " does not belong");
    }
  }

  void check_run(OpId id, const Action& action) {
    const Op* op = index_.op(id);
    if (op == nullptr) return bad(" runs the unknown op " + std::to_string(id.value));
    const auto* run = std::get_if<Communicate>(&action);
    if (action != action_of(*op, run == nullptr ? 0 : run->max_ctas)) {
      bad(" does not do what op " + op->name + " says");
    }
    if (op->micro_step < 0 || op->micro_step >= std::max(1, index_.program.micro_steps)) {
      bad(": op " + op->name + " is of micro-step " + std::to_string(op->micro_step) + " of " +
          std::to_string(index_.program.micro_steps));
    }
    if (const auto* work = std::get_if<CollectiveWork>(&op->work)) check_group(work->group);
    if (const auto* update = std::get_if<ShardUpdate>(&op->effect)) {
      check_bucket(update->gradients);
      check_bucket(update->parameters);
    }
    if (std::holds_alternative<Accumulate>(op->effect)) check_accumulate(*op);
  }

  void check_accumulate(const Op& op) {
    if (op.writes.empty()) return bad(": op " + op.name + " accumulates into nothing");
    const Tensor* target = index_.tensor(op.writes.front());
    for (const TensorId id : op.reads) {
      const Tensor* other = index_.tensor(id);
      if (target == nullptr || other == nullptr || other->numel() != target->numel()) {
        bad(": op " + op.name + " adds tensors of different sizes");
      }
    }
  }

  void check_copy(const Copy& copy) {
    check_bucket(copy.bucket);
    const BucketLayout* bucket = index_.bucket(copy.bucket);
    if (bucket == nullptr) return;
    for (const TensorId id : copy.gradients) {
      if (std::ranges::count(bucket->members, id, &BucketMember::tensor) == 0) {
        bad(" copies tensor " + std::to_string(id.value) + ", no member of " +
            bucket_name(copy.bucket));
      }
    }
  }

  const Index& index_;
  const RankProgram& role_;
  std::vector<Problem>& problems_;
  std::string at_;
  std::unordered_set<CommandId> ids_;
  std::unordered_set<EventId> recorded_;
  std::set<GroupId> groups_;  // those already checked against the role's ranks
};

constexpr OpId kNobody{-1};

// The op that last wrote each tensor, as ops run one after another.
class Writers {
 public:
  [[nodiscard]] OpId of(TensorId tensor) const { return last_.at(tensor); }
  void run(const Op& op) {
    for (const TensorId id : op.writes) last_[id] = op.id;
  }

 private:
  IdTable<TensorId, OpId> last_{kNobody};
};

std::string writer_name(const Index& index, OpId id) {
  return id == kNobody ? "an earlier step" : "op " + index.op(id)->name;
}

}  // namespace

bool check_references(const Index& index, const RankProgram& role, std::vector<Problem>& problems) {
  return ReferenceCheck(index, role, problems).check();
}

void check_op_order(const Index& index, const RankProgram& role, std::vector<Problem>& problems) {
  const std::size_t before = problems.size();
  const std::int32_t stage = index.stage_of(role);
  IdTable<OpId, std::int32_t> runs;
  for (const Command& command : role.commands) {
    if (const std::optional<OpId> op = op_run_by(command)) ++runs[*op];
  }
  // Of each op: where the writers of what it reads, in program order, begin in `expected`.
  IdTable<OpId, std::size_t> first;
  std::vector<OpId> expected;
  Writers in_program;
  for (const Op& op : index.program.ops) {
    const std::int32_t owed = index.runs(stage, op) ? 1 : 0;
    if (runs.at(op.id) != owed) {
      problems.push_back(
          {ProblemKind::OpOrder,
           "op " + op.name + " runs " + std::to_string(runs.at(op.id)) +
               (owed == 1 ? " times, not once" : " times in a role of another pipeline stage")});
    }
    if (owed == 0) continue;
    first[op.id] = expected.size();
    for (const TensorId id : op.reads) expected.push_back(in_program.of(id));
    in_program.run(op);
  }
  if (problems.size() != before) return;
  Writers in_role;
  for (const Command& command : role.commands) {
    const std::optional<OpId> run = op_run_by(command);
    if (!run) continue;
    const Op& op = *index.op(*run);
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      const OpId wanted = expected[first.at(op.id) + i];
      const OpId found = in_role.of(op.reads[i]);
      if (found == wanted) continue;
      problems.push_back({ProblemKind::OpOrder, index.label(command) + " reads " +
                                                    index.name(op.reads[i]) + " of " +
                                                    writer_name(index, found) + ", not of " +
                                                    writer_name(index, wanted)});
    }
    in_role.run(op);
  }
}

}  // namespace dovetail::schedule::verification
