// Compares the Program of a plan with the one that the user gave: tensors first, then the
// reductions of gradients, then ops. Each part of the original is looked up in the plan by its id,
// or by its name with the number of the micro-step; what is left over in the plan must be
// something that lowering adds.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/kept.h"

#include "schedule/gradient.h"
#include "schedule/visit.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace dovetail::schedule::verification {
namespace {

constexpr TensorId kNone{-1};

// Whether both do the same to gradients, whatever the factor.
bool same_effect(const Effect& a, const Effect& b) {
  if (const auto* sum = std::get_if<Accumulate>(&a)) {
    const auto* other = std::get_if<Accumulate>(&b);
    return other != nullptr && sum->overwrite == other->overwrite && sum->shard == other->shard;
  }
  if (const auto* update = std::get_if<Update>(&a)) {
    const auto* other = std::get_if<Update>(&b);
    return other != nullptr && update->elementwise == other->elementwise;
  }
  return a.index() == b.index();
}

bool same_communication(const Work& a, const Work& b) {
  const auto* message = std::get_if<CollectiveWork>(&a);
  return message == nullptr ? !std::holds_alternative<CollectiveWork>(b) : a == b;
}

// The op on another tensor of as many elements: its message has that one's type.
Op moved_onto(Op op, const Tensor& tensor) {
  std::get<CollectiveWork>(op.work).bytes = tensor.bytes();
  op.dtype = tensor.dtype;
  return op;
}

class KeptCheck {
 public:
  KeptCheck(const Index& index, std::vector<Problem>& problems)
      : index_(index), original_(index.original), plan_(index.program), problems_(problems) {}

  bool check() {
    if (&original_ == &plan_) return true;
    check_tensors();
    if (!problems_.empty()) return false;
    check_shape();
    check_debts();
    find_ops();
    for (const Op& op : original_.ops) is_original_[op.id] = 1;
    for (const Op& op : original_.ops) check_op(op);
    check_sharded_updates();
    for (const Op& op : plan_.ops) {
      if (!known_.at(op.id)) check_added(op);
    }
    return true;
  }

 private:
  void bad(const std::string& what) {
    problems_.push_back({ProblemKind::OtherProgram, "program: " + what});
  }

  void check_shape() {
    if (plan_.world_size != original_.world_size || plan_.stages != original_.stages) {
      bad("it is for " + std::to_string(plan_.world_size) + " ranks in " +
          std::to_string(plan_.stages) + " stages, the original for " +
          std::to_string(original_.world_size) + " in " + std::to_string(original_.stages));
    }
    if (plan_.micro_steps != index_.owed_micro_steps()) {
      bad("it has " + std::to_string(plan_.micro_steps) + " micro-steps, but " +
          std::to_string(index_.owed_micro_steps()) + " are asked for");
    }
    for (const ProcessGroup& group : original_.groups) {
      const ProcessGroup* kept = index_.group(group.id);
      if (kept == nullptr || *kept != group)
        bad("process group " + group.name + " is not as given");
    }
  }

  void check_tensors() {
    merged_ = IdTable<TensorId, TensorId>(kNone);
    for (const Tensor& tensor : original_.tensors) {
      const Tensor* kept = index_.tensor(tensor.id);
      if (kept == nullptr || *kept != tensor) bad("tensor " + tensor.name + " is not as given");
      given_[tensor.id] = &tensor;
    }
    for (const Tensor& tensor : plan_.tensors) {
      if (given_.at(tensor.id) != nullptr || !tensor.merges) continue;
      const Tensor* of = given_.at(*tensor.merges);
      if (of == nullptr || of->numel() != tensor.numel() || tensor.dtype != index_.merge.dtype ||
          merged_.at(*tensor.merges) != kNone) {
        bad("tensor " + tensor.name + " is not the sum of one gradient");
        continue;
      }
      merged_[of->id] = tensor.id;
    }
  }

  // The Program's own account of its debts, from which real ranks derive the values to expect.
  void check_debts() {
    std::map<TensorId, std::vector<const Reduction*>> stated;
    for (const Reduction& reduction : plan_.reductions) {
      stated[reduction.gradient].push_back(&reduction);
    }
    for (const Debt& debt : index_.debts()) {
      std::vector<const Reduction*>& kept = stated[debt.gradient];
      Rational factor;
      for (const Reduction* reduction : kept) {
        factor = factor * reduction->scale;
        if (reduction->op == ReduceOp::Average) {
          factor = factor * index_.average_over(reduction->group);
        }
      }
      const auto alike = [](const Reduction& owed, const Reduction* other) {
        return owed.group == other->group && owed.op == other->op;
      };
      if (!std::ranges::equal(debt.reductions, kept, alike)) {
        bad("gradient " + index_.name(debt.gradient) +
            " does not need the reductions that the original needs");
      } else if (factor != debt.factor) {
        bad("gradient " + index_.name(debt.gradient) + " needs " + to_string(factor) +
            " of its sum, but the original needs " + to_string(debt.factor));
      }
      stated.erase(debt.gradient);
    }
    for (const auto& [gradient, reductions] : stated) {
      bad("gradient " + index_.name(gradient) +
          " needs a reduction that the original does not need");
    }
  }

  void find_ops() {
    unrolled_ = plan_.micro_steps != original_.micro_steps;
    if (!unrolled_) return;
    for (const Op& op : original_.ops) {
      if (!is_repeated(op) || index_.op(op.id) == nullptr) continue;
      originals_.try_emplace(op.name, originals_.size());
    }
    // A plan that has them all has no more micro-steps than this, whatever it says.
    const std::size_t most = plan_.ops.size() / std::max<std::size_t>(1, originals_.size()) + 1;
    steps_ = std::min(static_cast<std::size_t>(std::max(0, plan_.micro_steps)), most);
    copies_.assign(originals_.size() * steps_, nullptr);
    for (const Op& op : plan_.ops) {
      const std::size_t end = op.name.rfind('@');
      if (end == std::string::npos) continue;
      const auto original = originals_.find(std::string_view(op.name).substr(0, end));
      const std::optional<std::size_t> step = number_of(std::string_view(op.name).substr(end + 1));
      if (original == originals_.end() || !step || *step >= steps_) continue;
      copies_[original->second * steps_ + *step] = &op;
    }
  }

  // As written without leading zeros, of up to nine digits.
  static std::optional<std::size_t> number_of(std::string_view text) {
    if (text.empty() || text.size() > 9 || (text.size() > 1 && text.front() == '0')) return {};
    std::size_t number = 0;
    for (const char digit : text) {
      if (digit < '0' || digit > '9') return {};
      number = 10 * number + static_cast<std::size_t>(digit - '0');
    }
    return number;
  }

  void check_op(const Op& op) {
    const Op* last = index_.op(op.id);
    if (last == nullptr) {
      if (drop_cast(op)) return;
      if (std::holds_alternative<Update>(op.effect)) return owe_shards(op);
      return bad("op " + op.name + " is missing");
    }
    known_[op.id] = 1;
    const bool repeated = unrolled_ && is_repeated(op);
    const bool is_late = unrolled_ && op.phase != Phase::Optimizer;
    const TensorId target = op.writes.empty() ? kNone : sum_of(op.writes.front());
    const bool is_moved = is_late && !repeated && target != op.writes.front();
    check_kept_op(is_moved ? moved_onto(op, *index_.tensor(target)) : op, *last,
                  is_late ? plan_.micro_steps - 1 : op.micro_step);
    if (!repeated) return;
    const std::size_t original = originals_.at(op.name);
    for (std::int32_t step = 0; step + 1 < plan_.micro_steps; ++step) {
      const auto at = static_cast<std::size_t>(step);
      const Op* const copy = at < steps_ ? copies_[original * steps_ + at] : nullptr;
      if (copy == nullptr) {
        bad("op " + op.name + " is missing in micro-step " + std::to_string(step));
        continue;
      }
      known_[copy->id] = 1;
      check_kept_op(op, *copy, step);
    }
  }

  void check_kept_op(const Op& op, const Op& kept, std::int32_t micro_step) {
    const auto kept_as = [&](const std::vector<TensorId>& given,
                             const std::vector<TensorId>& found) {
      return std::ranges::equal(
          given, found, [&](TensorId id, TensorId other) { return is_kept_as(op, id, other); });
    };
    const bool divided = std::holds_alternative<GlobalNorm>(op.effect) && find_norm_parts(op, kept);
    if (kept.micro_step != micro_step || kept.phase != op.phase || kept.stage != op.stage ||
        kept.dtype != op.dtype || !same_effect(op.effect, kept.effect) ||
        !same_communication(op.work, kept.work) || (!divided && !kept_as(op.reads, kept.reads)) ||
        !kept_as(op.writes, kept.writes)) {
      bad("op " + kept.name + " is not what the original computes");
    }
  }

  // Whether the norm's reads are those of this op and of others whose results are added to its own before
  // anybody else reads that.
  bool find_norm_parts(const Op& norm, const Op& kept) {
    if (norm.writes.size() != 1 || kept.writes != norm.writes) return false;
    std::vector<TensorId> reads = kept.reads;
    std::map<TensorId, const Op*> parts;  // by what they write
    bool is_open = false;                 // written, and not used yet
    for (const Op& op : plan_.ops) {
      if (op.id == norm.id) is_open = true;
      const bool is_new = !is_original_.at(op.id);
      const auto* sum = std::get_if<Accumulate>(&op.effect);
      if (is_new && std::holds_alternative<GlobalNorm>(op.effect) && op.writes.size() == 1 &&
          given_.at(op.writes.front()) == nullptr) {
        parts[op.writes.front()] = &op;
      } else if (is_new && sum != nullptr && op.writes == norm.writes && op.reads.size() == 2 &&
                 op.reads.front() == op.writes.front() && parts.contains(op.reads.back())) {
        if (!is_open || sum->overwrite || sum->factor != Rational()) return false;
        const auto part = parts.find(op.reads.back());
        reads.insert(reads.end(), part->second->reads.begin(), part->second->reads.end());
        known_[op.id] = known_[part->second->id] = 1;
        parts.erase(part);
      } else if (!(is_new && std::holds_alternative<CollectiveWork>(op.work)) &&
                 std::ranges::count(op.reads, norm.writes.front()) > 0) {
        is_open = false;
      }
    }
    std::vector<TensorId> owed;
    for (const TensorId id : norm.reads) owed.push_back(sum_of(id));
    std::ranges::sort(reads);
    std::ranges::sort(owed);
    return reads == owed;
  }

  // The tensor that stands for `id` in an op of the original.
  bool is_kept_as(const Op& op, TensorId id, TensorId other) const {
    if (!is_repeated(op)) return other == sum_of(id);
    if (other == id) return true;
    const Tensor& given = *given_.at(id);
    const Tensor* found = index_.tensor(other);
    const bool value = given.kind == TensorKind::Activation || given.kind == TensorKind::Gradient;
    return plan_.stages > 1 && value && index_.debt_of(id) < 0 && found != nullptr &&
           given_.at(other) == nullptr && found->kind == given.kind &&
           found->dtype == given.dtype && found->shape == given.shape;
  }

  // What the optimizer reads for a gradient, or for a cast of it that is gone.
  [[nodiscard]] TensorId sum_of(TensorId id) const {
    const TensorId cast_from = casts_.at(id);
    const TensorId from = cast_from == kNone ? id : cast_from;
    const TensorId sum = merged_.at(from);
    return sum == kNone ? from : sum;
  }

  bool drop_cast(const Op& op) {
    const auto* copy = std::get_if<Accumulate>(&op.effect);
    if (copy == nullptr || !copy->overwrite || copy->factor != Rational(1) || !unrolled_) {
      return false;
    }
    if (op.reads.size() != 1 || op.writes.size() != 1) return false;
    const TensorId from = op.reads.front();
    const TensorId to = op.writes.front();
    if (merged_.at(from) == kNone || given_.at(to)->dtype != index_.merge.dtype) return false;
    const bool used = std::ranges::any_of(
        plan_.ops, [&](const Op& other) { return std::ranges::count(other.reads, to) > 0; });
    if (!used) casts_[to] = from;
    return !used;
  }

  // The i-th gradient that an update reads belongs to the i-th parameter that it writes.
  void owe_shards(const Op& update) {
    std::vector<TensorId> gradients;
    for (const TensorId id : update.reads) {
      if (is_gradient(given_.at(id)->kind)) gradients.push_back(sum_of(id));
    }
    std::vector<TensorId> parameters;
    for (const TensorId id : update.writes) {
      if (given_.at(id)->kind == TensorKind::Parameter) parameters.push_back(id);
    }
    if (!std::get<Update>(update.effect).elementwise || gradients.empty() ||
        gradients.size() != parameters.size()) {
      return bad("op " + update.name + " is missing");
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      owed_shards_[gradients[i]] = {&update, parameters[i]};
    }
  }

  void check_sharded_updates() {
    std::map<TensorId, std::int64_t> updated;  // elements, by gradient
    for (const Op& op : plan_.ops) {
      const auto* shard = std::get_if<ShardUpdate>(&op.effect);
      if (shard == nullptr || known_.at(op.id)) continue;
      known_[op.id] = 1;
      const BucketLayout* from = index_.bucket(shard->gradients);
      const BucketLayout* to = index_.bucket(shard->parameters);
      if (from == nullptr || to == nullptr || from->members.size() != to->members.size()) {
        bad("op " + op.name + " updates a bucket that is not there");
        continue;
      }
      for (std::size_t i = 0; i < from->members.size(); ++i) {
        const TensorId gradient = from->members[i].tensor;
        const auto owed = owed_shards_.find(gradient);
        if (owed == owed_shards_.end() || owed->second.parameter != to->members[i].tensor) {
          bad("op " + op.name + " updates " + index_.name(to->members[i].tensor) + " with " +
              index_.name(gradient) + ", which the original does not");
          continue;
        }
        updated[gradient] += from->members[i].elements(*index_.tensor(gradient));
        check_operands(op, *owed->second.update);
      }
    }
    for (const auto& [gradient, owed] : owed_shards_) {
      const std::int64_t all = index_.tensor(gradient)->numel();
      if (updated[gradient] == all) continue;
      bad("op " + owed.update->name + " is missing: sharded updates take " +
          std::to_string(updated[gradient]) + " of " + std::to_string(all) + " elements of " +
          index_.name(gradient));
    }
  }

  // State, norm, learning rate: whatever is no gradient and no parameter of another bucket.
  void check_operands(const Op& shard, const Op& update) {
    const auto check = [&](const std::vector<TensorId>& given, const std::vector<TensorId>& found) {
      for (const TensorId id : given) {
        const TensorKind kind = given_.at(id)->kind;
        if (is_gradient(kind) || kind == TensorKind::Parameter) continue;
        if (std::ranges::count(found, id) > 0) continue;
        bad("op " + shard.name + " leaves out " + index_.name(id) + " of " + update.name);
      }
    };
    check(update.reads, shard.reads);
    check(update.writes, shard.writes);
  }

  // An op that the original does not have.
  void check_added(const Op& op) {
    const auto* message = std::get_if<CollectiveWork>(&op.work);
    const bool moves = message != nullptr && message->kind == Collective::SendRecv &&
                       message->purpose == Purpose::Pipeline && plan_.stages > 1;
    const bool completes = message != nullptr && message->kind == Collective::AllReduce &&
                           message->purpose == Purpose::GlobalNorm && op.reads == op.writes;
    const bool adds = std::holds_alternative<Accumulate>(op.effect) && op.writes.size() == 1 &&
                      given_.at(op.writes.front()) == nullptr;
    const bool harmless = std::ranges::none_of(op.writes, [&](TensorId id) {
      const Tensor* given = given_.at(id);
      return given != nullptr && (!moves || given->kind == TensorKind::Parameter);
    });
    if ((moves && harmless) || completes || (adds && harmless)) return;
    bad("op " + op.name + " is not of the original");
  }

  struct OwedShard {
    const Op* update = nullptr;
    TensorId parameter;
  };

  const Index& index_;
  const Program& original_;
  const Program& plan_;
  std::vector<Problem>& problems_;
  bool unrolled_ = false;                            // forward and backward are repeated
  IdTable<TensorId, const Tensor*> given_{nullptr};  // tensors of the original
  IdTable<TensorId, TensorId> merged_{kNone};        // gradient -> its sum, where lowering made it
  IdTable<TensorId, TensorId> casts_{kNone};         // result of a dropped cast -> the gradient
  IdTable<OpId, char> is_original_;                  // ops of the original
  IdTable<OpId, char> known_;                        // ops of the plan that are accounted for
  std::unordered_map<std::string_view, std::size_t> originals_;  // by name, numbered
  std::size_t steps_ = 0;                      // micro-steps that copies_ can hold
  std::vector<const Op*> copies_;              // [original][micro-step]: of the plan, or null
  std::map<TensorId, OwedShard> owed_shards_;  // by what lies in the bucket
};

}  // namespace

bool check_kept(const Index& index, std::vector<Problem>& problems) {
  return KeptCheck(index, problems).check();
}

}  // namespace dovetail::schedule::verification
