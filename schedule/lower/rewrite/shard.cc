// Finding the updates of each bucket, checking that they can be cut, and replacing them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/rewrite/shard.h"

#include "base/count.h"
#include "schedule/gradient.h"
#include "schedule/id_table.h"
#include "schedule/lower/editor.h"
#include "schedule/lower/rewrite/shard_norm.h"
#include "schedule/lower/rewrite/shard_work.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace dovetail::schedule {
namespace {

using MaybeRefusal = std::optional<Refusal>;

class Sharder {
 public:
  Sharder(Program program, const Schedule& schedule)
      : editor_(std::move(program)),
        schedule_(schedule),
        sums_shards_(editor_.program().micro_steps > 1 &&
                     schedule.merge.sync == SyncPoint::EveryMicroStep) {}

  std::variant<Sharded, Refusal> run() && {
    for (const Bucket& bucket : schedule_.buckets) {
      if (bucket.collective == Collective::ReduceScatter) buckets_.push_back(&bucket);
    }
    if (buckets_.empty()) return Sharded{std::move(editor_).commit(), {}, {}};
    MaybeRefusal refused = place_gradients();
    if (!refused && sums_shards_) refused = shard_sums();
    if (!refused) refused = find_updates();
    if (!refused) refused = check_other_readers();
    if (!refused) refused = shard_norms();
    if (!refused) refused = replace_updates();
    if (refused) return *std::move(refused);
    const std::string report = counted(updates_.size(), "update") + " became one per bucket, " +
                               counted(sharded_.size(), "bucket");
    return Sharded{std::move(editor_).commit(), report, std::move(sharded_)};
  }

 private:
  // Something the updates read as a gradient, and what is known of it.
  struct Gradient {
    std::int64_t placed = 0;  // elements in reduce-scattered buckets
    std::optional<TensorId> parameter;
    std::optional<std::size_t> update;  // position of the op
  };

  [[nodiscard]] const Program& program() const { return editor_.program(); }
  [[nodiscard]] const std::string& name_of(TensorId id) const { return program().tensor(id).name; }
  // What the bucket's update reads: the gradient, or its sum over micro-steps.
  [[nodiscard]] TensorId held(const Slice& slice) const {
    const TensorId sum = sums_.at(slice.tensor);
    return sum.value < 0 ? slice.tensor : sum;
  }

  MaybeRefusal place_gradients() {
    for (const Tensor& tensor : program().tensors) {
      if (tensor.merges) sums_[*tensor.merges] = tensor.id;
    }
    for (const Bucket* bucket : buckets_) {
      for (const Slice& slice : bucket->gradients) {
        const TensorId id = held(slice);
        gradients_[id].placed += slice.elements(program().tensor(slice.tensor));
        if (is_sharded_.at(id)) continue;
        is_sharded_[id] = 1;
        order_.push_back(id);
      }
    }
    for (const TensorId id : order_) {
      if (gradients_[id].placed == program().tensor(id).numel()) continue;
      return Refusal{"gradient " + name_of(id) + " lies only partly in reduce-scattered buckets (" +
                     std::to_string(gradients_[id].placed) + " of " +
                     std::to_string(program().tensor(id).numel()) + " elements)"};
    }
    return std::nullopt;
  }

  // The sums of scattered gradients are of shards, and nobody else in backward reads what is scattered.
  MaybeRefusal shard_sums() {
    IdTable<TensorId, std::int64_t> ranks;  // over which a gradient is scattered
    for (const Bucket* bucket : buckets_) {
      for (const Slice& slice : bucket->gradients) {
        ranks[slice.tensor] = program().group(bucket->group).size();
      }
    }
    std::set<std::pair<std::int32_t, TensorId>> complete;  // a later op of the micro-step writes it
    const std::vector<Op>& ops = program().ops;
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
      if (op->phase == Phase::Optimizer) continue;
      const auto* sum = std::get_if<Accumulate>(&op->effect);
      const bool adds = sum != nullptr && is_sharded_.at(op->writes.front()) != 0;
      for (const TensorId id : op->writes) complete.insert({op->micro_step, id});
      for (const TensorId id : op->reads) {
        if (ranks.at(id) == 0 || complete.contains({op->micro_step, id})) continue;
        if (!adds) return needs_whole(*op, id);
        if (MaybeRefusal refused = shard_sum(*op, ranks.at(id))) return refused;
      }
    }
    return std::nullopt;
  }

  MaybeRefusal shard_sum(const Op& whole, std::int64_t ranks) {
    Op op = whole;
    std::get<Accumulate>(op.effect).shard = true;
    WorkSum work;
    if (!work.add(whole.work, {.part = 1, .whole = ranks})) {
      return Refusal{"sum " + op.name + ": the work of a shard of it is not known"};
    }
    op.work = work.total();
    editor_.replace(std::move(op));
    return std::nullopt;
  }

  [[nodiscard]] Refusal needs_whole(const Op& op, TensorId gradient) const {
    return Refusal{"backward op " + op.name + " needs the whole of " + name_of(gradient) +
                   ", which is reduce-scattered"};
  }

  MaybeRefusal find_updates() {
    for (std::size_t i = 0; i < program().ops.size(); ++i) {
      const Op& op = program().ops[i];
      const bool reads_shards =
          op.phase == Phase::Optimizer &&
          std::ranges::any_of(op.reads, [&](TensorId id) { return is_sharded_.at(id) != 0; });
      if (!reads_shards || std::holds_alternative<GlobalNorm>(op.effect)) continue;
      const auto* update = std::get_if<Update>(&op.effect);
      if (update == nullptr) {
        return Refusal{"optimizer op " + op.name + " is not known to be an update, so it needs " +
                       "whole gradients"};
      }
      if (!update->elementwise) {
        return Refusal{"update " + op.name + " is not elementwise, so it needs whole gradients"};
      }
      updates_.push_back(i);
      if (MaybeRefusal refused = pair_parameters(i)) return refused;
    }
    for (const TensorId id : order_) {
      if (!gradients_[id].update) return Refusal{"no update reads gradient " + name_of(id)};
    }
    return std::nullopt;
  }

  // The i-th gradient that the update reads belongs to the i-th parameter that it writes.
  MaybeRefusal pair_parameters(std::size_t position) {
    const Op& op = program().ops[position];
    std::vector<TensorId> gradients;
    for (const TensorId id : op.reads) {
      if (is_gradient(program().tensor(id).kind)) gradients.push_back(id);
    }
    std::vector<TensorId> parameters;
    for (const TensorId id : op.writes) {
      if (program().tensor(id).kind == TensorKind::Parameter) parameters.push_back(id);
      if (program().tensor(id).kind == TensorKind::OptimizerState) cut_[id] = 1;
    }
    if (gradients.size() != parameters.size()) {
      return Refusal{"update " + op.name + " reads " + std::to_string(gradients.size()) +
                     " gradients and writes " + std::to_string(parameters.size()) + " parameters"};
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const Tensor& gradient = program().tensor(gradients[i]);
      const Tensor& parameter = program().tensor(parameters[i]);
      if (!is_sharded_.at(gradient.id)) {
        return Refusal{"update " + op.name + " reads " + gradient.name +
                       ", which is not reduce-scattered, beside gradients that are"};
      }
      if (gradients_[gradient.id].update) {
        return Refusal{"two updates read gradient " + gradient.name};
      }
      if (gradient.numel() != parameter.numel()) {
        return Refusal{"gradient " + gradient.name + " has " + std::to_string(gradient.numel()) +
                       " elements, its parameter " + parameter.name + " " +
                       std::to_string(parameter.numel())};
      }
      gradients_[gradient.id].parameter = parameter.id;
      gradients_[gradient.id].update = position;
      cut_[parameter.id] = 1;
    }
    return std::nullopt;
  }

  // Ops that would take a shard for the whole: optimizer ops on cut parameters or state, and
  // backward ops that read a gradient after its last write.
  MaybeRefusal check_other_readers() const {
    IdTable<TensorId, char> complete;  // gradients that a later op of backward writes
    for (std::size_t i = program().ops.size(); i-- > 0;) {
      const Op& op = program().ops[i];
      const bool optimizer = op.phase == Phase::Optimizer;
      for (const auto* list : {&op.reads, &op.writes}) {
        for (const TensorId id : *list) {
          if (optimizer && cut_.at(id) && !is_update(i)) {
            return Refusal{"optimizer op " + op.name + " needs the whole of " + name_of(id) +
                           ", which is sharded"};
          }
        }
      }
      if (optimizer) continue;
      for (const TensorId id : op.writes) complete[id] = 1;
      for (const TensorId id : op.reads) {
        if (is_sharded_.at(id) && !complete.at(id)) return needs_whole(op, id);
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] bool is_update(std::size_t position) const {
    return std::ranges::binary_search(updates_, position);
  }

  MaybeRefusal shard_norms() {
    IdTable<TensorId, GroupId> cut_over(GroupId{-1});
    for (const Bucket* bucket : buckets_) {
      for (const Slice& slice : bucket->gradients) cut_over[held(slice)] = bucket->group;
    }
    return schedule::shard_norms(editor_, cut_over);
  }

  MaybeRefusal replace_updates() {
    std::int32_t next = 0;
    for (const Bucket& bucket : schedule_.buckets) next = std::max(next, bucket.id.value + 1);
    for (const FrozenBlock& block : schedule_.frozen) next = std::max(next, block.id.value + 1);
    const std::int64_t wanted = std::int64_t{sums_shards_ ? 2 : 1} * std::ssize(buckets_);
    if (next + wanted > std::int64_t{kLargestId} + 1) {
      return Refusal{"no ids are left behind bucket " + std::to_string(next - 1) +
                     " for the buckets of the sharded parameters"};
    }
    for (const Bucket* bucket : buckets_) {
      ShardedBucket sharded{.gradients = bucket->id, .parameters = BucketId{next++}, .members = {}};
      if (sums_shards_) sharded.sums = BucketId{next++};
      if (MaybeRefusal refused = insert_update(*bucket, std::move(sharded))) return refused;
    }
    for (const std::size_t update : updates_) editor_.remove(program().ops[update].id);
    return std::nullopt;
  }

  // One op for the bucket, where the last of its updates stood.
  MaybeRefusal insert_update(const Bucket& bucket, ShardedBucket sharded) {
    Members mine;
    std::map<std::size_t, std::int64_t> updates;  // elements in the bucket, by position
    for (const Slice& slice : bucket.gradients) {
      const TensorId id = held(slice);
      const Gradient& gradient = gradients_[id];
      mine.members.insert({id, *gradient.parameter});
      updates[*gradient.update] += slice.elements(program().tensor(slice.tensor));
      sharded.members.emplace_back(*gradient.parameter, slice.first, slice.count);
    }
    const Op& last = program().ops[updates.rbegin()->first];
    Op op{.id = editor_.new_op_id(),
          .name = shard_update_name(bucket.id),
          .phase = Phase::Optimizer,
          .dtype = last.dtype,
          .work = MemoryWork{},
          .reads = {},
          .writes = {},
          .effect = ShardUpdate{.gradients = sharded.sums.value_or(bucket.id),
                                .parameters = sharded.parameters,
                                .traffic = traffic(bucket),
                                .rescale = std::get<Update>(last.effect).rescale},
          .stage = last.stage,
          .micro_step = last.micro_step};
    WorkSum work;
    for (const auto& [position, elements] : updates) {
      const Op& update = program().ops[position];
      if (std::get<Update>(update.effect).rescale != std::get<Update>(last.effect).rescale) {
        return Refusal{"updates " + update.name + " and " + last.name +
                       " of one bucket rescale differently"};
      }
      take_operands(update, mine, op);
      if (!work.add(update.work, share(bucket, update, elements))) {
        return Refusal{"update " + update.name + ": the work of a shard of it is not known"};
      }
    }
    op.work = work.total();
    editor_.insert_one_before(last.id, std::move(op));
    sharded_.push_back(std::move(sharded));
    return std::nullopt;
  }

  // A bucket's gradients and parameters, and which operands its update has so far.
  struct Members {
    std::set<TensorId> members;
    std::set<TensorId> read;
    std::set<TensorId> written;
  };

  // Adds the update's operands, without gradients and parameters of other buckets.
  void take_operands(const Op& update, Members& mine, Op& op) const {
    const auto take = [&](const std::vector<TensorId>& from, std::set<TensorId>& known,
                          std::vector<TensorId>& to) {
      for (const TensorId id : from) {
        const TensorKind kind = program().tensor(id).kind;
        const bool member = is_sharded_.at(id) || (kind == TensorKind::Parameter && cut_.at(id));
        if ((!member || mine.members.contains(id)) && known.insert(id).second) to.push_back(id);
      }
    };
    take(update.reads, mine.read, op.reads);
    take(update.writes, mine.written, op.writes);
  }

  // Of one rank, rounded up to elements: its gradients and parameters.
  [[nodiscard]] Bytes traffic(const Bucket& bucket) {
    Bytes element{};
    std::int64_t elements = 0;
    for (const Slice& slice : bucket.gradients) {  // one dtype of each per bucket
      const TensorId id = held(slice);
      element = element_size(program().tensor(id).dtype) +
                element_size(program().tensor(*gradients_[id].parameter).dtype);
      elements += slice.elements(program().tensor(slice.tensor));
    }
    const std::int64_t ranks = program().group(bucket.group).size();
    return element * ((elements + ranks - 1) / ranks);
  }

  // The part of an update that one rank of the bucket's group does for the bucket, which holds so many
  // elements of the gradients that the update reads.
  [[nodiscard]] Share share(const Bucket& bucket, const Op& update, std::int64_t elements) const {
    Share share{.part = elements, .whole = 0};
    for (const TensorId id : update.reads) {
      if (is_sharded_.at(id)) share.whole += program().tensor(id).numel();
    }
    share.whole *= program().group(bucket.group).size();
    return share;
  }

  ProgramEditor editor_;
  const Schedule& schedule_;
  const bool sums_shards_;                          // over micro-steps, each of which reduces
  std::vector<const Bucket*> buckets_;              // that are reduce-scattered
  IdTable<TensorId, TensorId> sums_{TensorId{-1}};  // of a gradient over micro-steps
  IdTable<TensorId, Gradient> gradients_;
  IdTable<TensorId, char> is_sharded_;  // gradients (or sums)
  IdTable<TensorId, char> cut_;         // parameters and state of which a rank keeps a shard
  std::vector<TensorId> order_;
  std::vector<std::size_t> updates_;  // positions, rising
  std::vector<ShardedBucket> sharded_;
};

}  // namespace

std::string shard_update_name(BucketId bucket) {
  return "bucket" + std::to_string(bucket.value) + ".update";
}

std::variant<Sharded, Refusal> shard_updates(Program program, const Schedule& schedule) {
  return Sharder(std::move(program), schedule).run();
}

}  // namespace dovetail::schedule
