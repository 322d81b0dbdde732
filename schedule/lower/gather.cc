// Lays out the buckets of parameters beside the sharded buckets of gradients, and decides for each
// when it is gathered, where it is waited for and when its memory is released.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/gather.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/count.h"
#include "base/error.h"
#include "schedule/lower/layout.h"
#include "schedule/lower/survey.h"
#include "schedule/visit.h"

namespace dovetail::schedule::internal {
namespace {

// Of each bucket of parameters the op that writes it.
IdTable<BucketId, OpId> updates_of(const Program& program) {
  IdTable<BucketId, OpId> updates(OpId{-1});
  for (const Op& op : program.ops) {
    if (const auto* update = std::get_if<ShardUpdate>(&op.effect)) {
      updates[update->parameters] = op.id;
    }
  }
  return updates;
}

// The first and last op of the role that touch a parameter.
struct Uses {
  std::size_t first = kEnd;
  std::size_t last = 0;
};

IdTable<TensorId, Uses> parameter_uses(const Draft& draft, std::int32_t role) {
  IdTable<TensorId, Uses> uses;
  for (const GatherPlan& plan : draft.gathers) {
    for (const BucketMember& member : draft.out.bucket(plan.parameters).members) {
      uses[member.tensor].first = kEnd - 1;  // wanted; no op yet
    }
  }
  const Program& program = draft.program();
  for (const std::size_t i : draft.ops_of(role)) {
    for (const auto* list : {&program.ops[i].reads, &program.ops[i].writes}) {
      for (const TensorId id : *list) {
        if (uses.at(id).first == kEnd) continue;
        uses[id] = {std::min(uses.at(id).first, i), i};
      }
    }
  }
  return uses;
}

// The first op of the role behind `position` that touches a member.
std::size_t next_use(const Draft& draft, std::int32_t role, const BucketLayout& parameters,
                     std::size_t position) {
  const std::vector<Op>& ops = draft.program().ops;
  const std::vector<std::size_t>& mine = draft.ops_of(role);
  for (auto at = std::ranges::upper_bound(mine, position); at != mine.end(); ++at) {
    const std::size_t i = *at;
    for (const BucketMember& member : parameters.members) {
      if (std::ranges::count(ops[i].reads, member.tensor) > 0) return i;
      if (std::ranges::count(ops[i].writes, member.tensor) > 0) return i;
    }
  }
  return kEnd;
}

Travel travel_of(std::size_t plan, const Placement& placement) {
  return {.kind = Travel::Kind::Gather,
          .what = plan,
          .stream = stream_of(placement.stream),
          .max_ctas = placement.max_ctas};
}

bool serves(GatherFor readers, Phase phase) {
  if (phase == Phase::Optimizer) return false;
  return readers == GatherFor::ForwardAndBackward ||
         (readers == GatherFor::Forward) == (phase == Phase::Forward);
}

// Gathers before each use.
class EachUse {
 public:
  EachUse(const Draft& draft, RoleDraft& role)
      : draft_(draft), program_(draft.program()), role_(role), free_(draft.gathers.size(), 0) {
    for (std::size_t k = 0; k < draft.gathers.size(); ++k) {
      plan_of_[draft.gathers[k].named] = static_cast<std::int32_t>(k);
      for (const BucketMember& member : draft.out.bucket(draft.gathers[k].parameters).members) {
        holder_[member.tensor] = static_cast<std::int32_t>(k);
      }
    }
  }

  void run() {
    find_uses();
    for (std::int32_t step = 0; step < program_.micro_steps; ++step) {
      for (std::size_t k = 0; k < draft_.schedule.gathers.size(); ++k) want(k, step);
    }
    if (program_.stages > 1) join_micro_batches(wanted_);
    place_in_turn(wanted_, free_, role_.travels);
  }

 private:
  // Of each bucket: first and last reader in forward and in backward of each micro-step.
  void find_uses() {
    const auto steps = static_cast<std::size_t>(program_.micro_steps);
    uses_.assign(steps, std::vector<Uses>(2 * draft_.gathers.size()));
    begin_.assign(steps, kEnd);
    begin_.front() = 0;
    for (const std::size_t i : draft_.ops_of(role_.role)) {
      const Op& op = program_.ops[i];
      if (op.phase == Phase::Optimizer) continue;
      const auto step = steps == 1 ? 0 : static_cast<std::size_t>(op.micro_step);
      begin_[step] = std::min(begin_[step], i);
      for (const TensorId id : op.reads) {
        const std::int32_t holder = holder_.at(id);
        if (holder < 0) continue;
        Uses& uses = uses_[step][2 * static_cast<std::size_t>(holder) +
                                 (op.phase == Phase::Backward ? 1 : 0)];
        uses = {std::min(uses.first, i), i};
      }
    }
  }

  [[nodiscard]] std::size_t plan_of(const ParameterGather& gather) const {
    const std::int32_t plan = plan_of_.at(gather.bucket);
    if (plan >= 0) return static_cast<std::size_t>(plan);
    throw InputError(draft_.name(gather) +
                     ": no bucket of this id is reduce-scattered, and no block is frozen");
  }

  void want(std::size_t index, std::int32_t step) {
    const ParameterGather& gather = draft_.schedule.gathers[index];
    const auto at = static_cast<std::size_t>(step);
    const std::size_t plan = plan_of(gather);
    if (draft_.gathers[plan].role != role_.role) return;
    WantedGather wanted{.travel = travel_of(plan, gather),
                        .gather = index,
                        .stays = gather.readers == GatherFor::ForwardAndBackward};
    for (const Phase phase : {Phase::Forward, Phase::Backward}) {
      const Uses& in_phase = uses_[at][2 * plan + (phase == Phase::Backward ? 1 : 0)];
      if (serves(gather.readers, phase) && in_phase.first != kEnd)
        wanted.serve(in_phase.first, in_phase.last);
    }
    if (wanted.first == kEnd) {
      throw InputError(draft_.name(gather) + ": no op reads its parameters there");
    }
    wanted.asked = visit(
        gather.launch, [&](const LaunchWhenReady&) { return begin_[at]; },
        [&](const LaunchAfterOp& after) { return behind(gather, after.op, step); },
        [&](const LaunchBeforeOp& before) {
          wanted.behind_waits = true;
          const std::size_t place = behind(gather, before.op, step);
          return place > 0 ? place - 1 : 0;
        },
        [&](const LaunchAfterBackward&) { return refuse(gather, "after backward"); },
        [&](const LaunchInBatch&) { return refuse(gather, "in a batch"); });
    wanted_.push_back(wanted);
  }

  // The place behind the op, or behind what it is in this micro-step; of a pipeline's ops the optimizer's are in the last one only.
  [[nodiscard]] std::size_t behind(const ParameterGather& gather, OpId id,
                                   std::int32_t step) const {
    const std::size_t known = draft_.positions.at(id);
    const bool is_missing = program_.stages > 1 && step + 1 < program_.micro_steps &&
                            known != kEnd && !is_repeated(program_.ops[known]);
    return is_missing ? 0 : position_of(draft_, role_, draft_.name(gather), id, step) + 1;
  }

  std::size_t refuse(const ParameterGather& gather, const char* where) const {
    throw InputError(draft_.name(gather) + ": parameters cannot be gathered " + where);
  }

  const Draft& draft_;
  const Program& program_;
  RoleDraft& role_;
  IdTable<TensorId, std::int32_t> holder_{-1};   // position in Draft::gathers
  IdTable<BucketId, std::int32_t> plan_of_{-1};  // the same
  std::vector<std::vector<Uses>> uses_;          // [micro-step][plan, forward or backward]
  std::vector<std::size_t> begin_;               // of each micro-step
  std::vector<WantedGather> wanted_;             // in the order in which they are placed
  std::vector<std::size_t> free_;                // of each bucket: from where it is released
};

// Of the frozen blocks.
class FrozenLayout {
 public:
  explicit FrozenLayout(Draft& draft) : draft_(draft), program_(draft.program()) {}

  void run() {
    if (draft_.schedule.frozen.empty()) return;
    for (const FrozenBlock& block : draft_.schedule.frozen) {
      for (const TensorId id : block.parameters) block_of_[id] = &block;
    }
    find_roles();
    for (const FrozenBlock& block : draft_.schedule.frozen) place(block);
  }

 private:
  [[noreturn]] void refuse(const FrozenBlock& block, const std::string& why) const {
    throw InputError("schedule " + draft_.schedule.policy + ": frozen block " +
                     std::to_string(block.id.value) + ": " + why);
  }

  // Whose ops read each block; nobody else may, and nobody may write to it.
  void find_roles() {
    for (const Op& op : program_.ops) {
      for (const TensorId id : op.writes) {
        if (const FrozenBlock* block = block_of_.at(id)) {
          refuse(*block, "op " + op.name + " writes " + program_.tensor(id).name);
        }
      }
      for (const TensorId id : op.reads) {
        const FrozenBlock* block = block_of_.at(id);
        if (block == nullptr) continue;
        if (op.phase == Phase::Optimizer) {
          refuse(*block, "optimizer op " + op.name + " reads " + program_.tensor(id).name);
        }
        const std::int32_t role = program_.role_of(op);
        if (role_.try_emplace(block->id, role).first->second != role) {
          refuse(*block, "mixes stages: " + program_.tensor(id).name);
        }
      }
    }
  }

  void place(const FrozenBlock& block) {
    if (draft_.schedule.parameters != ParameterSync::EachUse) {
      refuse(block, "parameters are sharded without gradients only where they are gathered " +
                        std::string(to_string(ParameterSync::EachUse)));
    }
    if (block.id.value < 0 || block.id.value > kLargestId) refuse(block, "no such id is possible");
    const bool is_known = std::ranges::any_of(
        draft_.out.buckets, [&](const BucketLayout& known) { return known.bucket == block.id; });
    if (is_known) refuse(block, "its id is used twice");
    if (block.parameters.empty()) refuse(block, "has no parameters");
    const std::int64_t shards = program_.group(block.group).size();
    BucketLayout layout{.bucket = block.id,
                        .dtype = program_.tensor(block.parameters.front()).dtype,
                        .mode = block.mode,
                        .payload = Bytes(0),
                        .size = Bytes(0),
                        .members = {},
                        .shards = shards,
                        .cut_over = shards > 1 ? std::optional(block.group) : std::nullopt,
                        .residence = Residence::Shard};
    for (const TensorId id : block.parameters) {
      const Tensor& parameter = program_.tensor(id);
      if (parameter.kind != TensorKind::Parameter) refuse(block, parameter.name + " is none");
      if (parameter.dtype != layout.dtype) refuse(block, "mixes dtypes: " + parameter.name);
      if (block_of_.at(id) != &block || !placed_.insert(id).second) {
        refuse(block, parameter.name + " lies in two places");
      }
      layout.members.push_back({id, layout.payload});
      layout.payload += parameter.bytes();
    }
    const std::int64_t unit = shards * element_size(layout.dtype).count();
    layout.size = Bytes((layout.payload.count() + unit - 1) / unit * unit);
    const auto role = role_.find(block.id);
    draft_.gathers.push_back({.parameters = block.id,
                              .named = block.id,
                              .group = block.group,
                              .role = role == role_.end() ? 0 : role->second});
    draft_.out.buckets.push_back(std::move(layout));
  }

  Draft& draft_;
  const Program& program_;
  IdTable<TensorId, const FrozenBlock*> block_of_{nullptr};
  std::map<BucketId, std::int32_t> role_;
  std::set<TensorId> placed_;
};

}  // namespace

namespace {

// The bucket's ranges of other tensors, `members` one by one: the same elements at the same places, which have
// another size where the types differ.
BucketLayout laid_out_like(const Draft& draft, const BucketLayout& gradients, BucketId id,
                           const std::vector<Slice>& members, std::string_view what) {
  BucketLayout layout = gradients;
  layout.bucket = id;
  layout.dtype = draft.program().tensor(members.front().tensor).dtype;
  const auto resized = [&](Bytes bytes) {
    return element_size(layout.dtype) * (bytes.count() / element_size(gradients.dtype).count());
  };
  layout.payload = resized(gradients.payload);
  layout.size = resized(gradients.size);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Slice& slice = members[i];
    const Tensor& tensor = draft.program().tensor(slice.tensor);
    if (tensor.dtype != layout.dtype) {
      throw InputError("schedule " + draft.schedule.policy + ": the " + std::string(what) +
                       " of bucket " + std::to_string(gradients.bucket.value) +
                       " mix dtypes: " + tensor.name);
    }
    layout.members[i] = {slice.tensor, resized(gradients.members[i].offset), slice.first,
                         slice.count};
  }
  return layout;
}

// Where the sums of the bucket's shards over micro-steps lie: they are windows of it, but for gradients of which
// it holds a part.
BucketLayout sums_of(const Draft& draft, const BucketLayout& gradients, BucketId id,
                     const IdTable<TensorId, TensorId>& sums) {
  std::vector<Slice> members;
  bool some_part = false;
  for (const BucketMember& member : gradients.members) {
    Slice& slice = members.emplace_back(sums.at(member.tensor));
    slice.first = member.first;
    slice.count = member.count;
    const Tensor& tensor = draft.program().tensor(member.tensor);
    some_part = some_part || member.elements(tensor) < tensor.numel();
  }
  BucketLayout layout = laid_out_like(draft, gradients, id, members, "sums");
  if (!some_part) layout.mode = BucketMode::View;
  return layout;
}

}  // namespace

void lay_out_parameters(Draft& draft, const std::vector<ShardedBucket>& sharded) {
  const bool each_use = draft.schedule.parameters == ParameterSync::EachUse;
  draft.out.gather_limit = draft.schedule.gather_limit;
  IdTable<TensorId, TensorId> sums(TensorId{-1});
  for (const Tensor& tensor : draft.program().tensors) {
    if (tensor.merges) sums[*tensor.merges] = tensor.id;
  }
  const IdTable<BucketId, OpId> updates = updates_of(draft.program());
  for (const ShardedBucket& bucket : sharded) {
    const OpId update = updates.at(bucket.parameters);
    DOVETAIL_CHECK(update.value >= 0) << "no update writes bucket " << bucket.parameters;
    const BucketLayout gradients = draft.out.bucket(bucket.gradients);
    if (bucket.sums) {
      draft.out.buckets.push_back(sums_of(draft, gradients, *bucket.sums, sums));
    }
    BucketLayout layout =
        laid_out_like(draft, gradients, bucket.parameters, bucket.members, "parameters");
    if (each_use) layout.residence = Residence::Shard;
    const auto position = std::ranges::find(draft.schedule.buckets, bucket.gradients, &Bucket::id);
    const auto at = static_cast<std::size_t>(position - draft.schedule.buckets.begin());
    draft.gathers.push_back({.parameters = bucket.parameters,
                             .named = bucket.gradients,
                             .group = position->group,
                             .role = draft.buckets[at].role,
                             .bucket = at,
                             .update = update});
    draft.out.buckets.push_back(std::move(layout));
  }
  FrozenLayout(draft).run();
}

}  // namespace dovetail::schedule::internal

namespace dovetail::schedule {

void join_micro_batches(std::vector<WantedGather>& wanted) {
  std::vector<WantedGather> joined;
  std::vector<WantedGather> staying;
  for (const WantedGather& one : wanted) {
    if (!one.stays) {
      joined.push_back(one);
      continue;
    }
    const auto known = std::ranges::find(staying, one.gather, &WantedGather::gather);
    if (known == staying.end()) {
      staying.push_back(one);
    } else {
      known->serve(one.first, one.last);
    }
  }
  joined.insert(joined.end(), staying.begin(), staying.end());
  std::ranges::stable_sort(joined, {}, &WantedGather::first);
  std::swap(wanted, joined);
}

// A launch behind its reader would be no gather for it: the latest place is before it.
void place_in_turn(std::span<const WantedGather> wanted, std::vector<std::size_t>& free,
                   std::vector<Travel>& travels) {
  std::size_t previous = 0;
  for (const WantedGather& gather : wanted) {
    std::size_t& released = free[gather.travel.what];
    // Twice the op in front of which it is launched, and one where that is behind what the op waits for.
    const std::size_t asked = 2 * gather.asked + (gather.behind_waits ? 1 : 0);
    const std::size_t at = std::min(std::max({asked, 2 * released, previous}), 2 * gather.first);
    previous = at;
    released = gather.last + 1;
    Travel& travel = travels.emplace_back(gather.travel);
    if (at > 1) travel.launch_after = at / 2 - 1;
    travel.behind_waits = at % 2 == 1;
    travel.wait_before = gather.first;
    travel.release_after = gather.last;
  }
}

}  // namespace dovetail::schedule

namespace dovetail::schedule::internal {

void place_gathers(const Draft& draft, RoleDraft& role) {
  const ParameterSync sync = draft.schedule.parameters;
  if (sync != ParameterSync::EachUse && !draft.schedule.gathers.empty()) {
    throw InputError(draft.name(draft.schedule.gathers.front()) +
                     ": gathers are placed one by one only where parameters are gathered " +
                     std::string(to_string(ParameterSync::EachUse)));
  }
  if (sync == ParameterSync::EachUse) return EachUse(draft, role).run();
  if (draft.gathers.empty()) return;
  const bool next_forward = sync == ParameterSync::NextForward;
  const IdTable<TensorId, Uses> uses = parameter_uses(draft, role.role);
  std::vector<Travel> gathers;
  for (std::size_t k = 0; k < draft.gathers.size(); ++k) {
    const GatherPlan& plan = draft.gathers[k];
    if (plan.role != role.role) continue;
    const BucketLayout& parameters = draft.out.bucket(plan.parameters);
    Uses all;
    for (const BucketMember& member : parameters.members) {
      all.first = std::min(all.first, uses.at(member.tensor).first);
      all.last = std::max(all.last, uses.at(member.tensor).last);
    }
    Travel& gather = gathers.emplace_back(travel_of(k, draft.schedule.buckets[*plan.bucket]));
    gather.wait_before = all.first;
    if (!next_forward) {
      gather.launch_after = draft.positions.at(plan.update);
      gather.wait_before = all.last > *gather.launch_after
                               ? next_use(draft, role.role, parameters, *gather.launch_after)
                               : kEnd;
    }
  }
  // Launch order: of need, or of the updates.
  std::ranges::stable_sort(gathers, {}, [&](const Travel& gather) {
    return gather.launch_after.value_or(gather.wait_before);
  });
  role.travels.insert(role.travels.end(), gathers.begin(), gathers.end());
}

std::string gather_report(const Draft& draft) {
  if (draft.gathers.empty()) return {};
  const std::string buckets = counted(draft.gathers.size(), "bucket") + " of parameters ";
  switch (draft.schedule.parameters) {
    case ParameterSync::AfterUpdate:
      return buckets + "after their update";
    case ParameterSync::NextForward:
      return buckets + "in the next forward";
    case ParameterSync::EachUse:
      break;
  }
  return buckets + "before each use, " + counted(draft.schedule.gathers.size(), "gather");
}

}  // namespace dovetail::schedule::internal
