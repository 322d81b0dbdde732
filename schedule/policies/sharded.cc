// The policy of sharded updates: packs gradients into buckets of one size, chooses launch points,
// and refuses Programs whose updates cannot be cut into shards.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/sharded.h"

#include <algorithm>
#include <set>
#include <vector>

#include "schedule/id_table.h"
#include "schedule/policies/definition.h"
#include "schedule/policies/fsdp.h"
#include "schedule/policies/grouping.h"
#include "schedule/policies/scaling.h"

namespace dovetail::schedule {
namespace {

// In the order in which the Program lists them.
IdTable<TensorId, std::vector<GroupId>> groups_of_gradients(const Program& program) {
  IdTable<TensorId, std::vector<GroupId>> groups;
  for (const Reduction& reduction : program.reductions) {
    std::vector<GroupId>& known = groups[reduction.gradient];
    if (std::ranges::count(known, reduction.group) == 0) known.push_back(reduction.group);
  }
  return groups;
}

std::optional<std::string> replicas_refusal(const Program& program, const std::string& replicas,
                                            const IdTable<TensorId, std::vector<GroupId>>& groups) {
  bool some_owes_two = false;
  std::optional<TensorId> without;  // a gradient that owes two reductions, but none over that group
  bool is_owed = replicas.empty();
  for (const Reduction& reduction : program.reductions) {
    const std::vector<GroupId>& mine = groups.at(reduction.gradient);
    if (mine.size() > 2) return "a gradient needs more than two reductions";
    if (mine.size() < 2) continue;
    some_owes_two = true;
    const bool named = std::ranges::any_of(
        mine, [&](GroupId group) { return program.group(group).name == replicas; });
    if (!named && !without) without = reduction.gradient;
    is_owed = is_owed || named;
  }
  if (replicas.empty()) return std::nullopt;
  if (!some_owes_two) return "the gradients need no reduction over replicas \"" + replicas + "\"";
  if (!is_owed) return "no gradient is reduced over a process group \"" + replicas + "\"";
  if (!without) return std::nullopt;
  return program.tensor(*without).name + " needs two reductions, none of them over replicas \"" +
         replicas + "\"";
}

}  // namespace

std::optional<std::string> find_shards(const Program& program, const std::string& replicas,
                                       std::vector<OwedGradient>& owed) {
  const IdTable<TensorId, std::vector<GroupId>> groups = groups_of_gradients(program);
  if (auto refusal = replicas_refusal(program, replicas, groups)) return refusal;
  const IdTable<TensorId, TensorId> parameters = parameters_of(program);
  const auto over_replicas = [&](const OwedGradient& gradient) {
    const std::vector<GroupId>& mine = groups.at(gradient.tensor);
    if (mine.size() < 2) return false;
    return replicas.empty() ? gradient.group != mine.front()
                            : program.group(gradient.group).name == replicas;
  };
  std::erase_if(owed, over_replicas);
  for (OwedGradient& gradient : owed) {
    for (const GroupId group : groups.at(gradient.tensor)) {
      if (group != gradient.group) gradient.replicas = group;
    }
    const TensorId parameter = parameters.at(gradient.tensor);
    if (parameter.value >= 0) gradient.parameter = program.tensor(parameter).dtype;
  }
  return std::nullopt;
}

namespace {

// Why the updates of these gradients cannot work on shards.
std::optional<std::string> update_refusal(const Program& program,
                                          const std::vector<OwedGradient>& owed) {
  const BackwardReaders readers(program, owed);
  if (const std::optional<TensorId> read = readers.any()) {
    return "backward op " + program.ops[readers.first(*read)].name + " reads the whole reduced " +
           program.tensor(*read).name + ", of which a rank would hold only its shard";
  }
  IdTable<TensorId, char> is_owed(0);
  for (const OwedGradient& gradient : owed) is_owed[gradient.tensor] = 1;
  std::set<TensorId> updated;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::Optimizer) continue;
    for (const TensorId id : op.reads) {
      if (is_owed.at(id) == 0) continue;
      const auto* update = std::get_if<Update>(&op.effect);
      if (update != nullptr) updated.insert(id);
      if (update != nullptr ? update->elementwise : std::holds_alternative<GlobalNorm>(op.effect)) {
        continue;
      }
      return "optimizer op " + op.name + " is not elementwise: it needs the whole of " +
             program.tensor(id).name;
    }
  }
  for (const OwedGradient& gradient : owed) {
    if (updated.contains(gradient.tensor)) continue;
    return "no update reads " + program.tensor(gradient.tensor).name +
           ": there is nothing to shard";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> sharding_refusal(const Program& program,
                                            const std::vector<OwedGradient>& owed, ScaleAt scale) {
  std::optional<std::string> refusal = update_refusal(program, owed);
  return refusal ? refusal : scaling_refusal(program, scale);
}

std::optional<std::string> cut_refusal(const Program& program, const Schedule& schedule) {
  for (const Bucket& bucket : schedule.buckets) {
    if (bucket.mode != BucketMode::View) continue;
    for (const Slice& slice : bucket.gradients) {
      if (slice == Slice(slice.tensor)) continue;
      return "mode=view: " + program.tensor(slice.tensor).name +
             " spans buckets, so it must be copied into them: use mode=copy";
    }
  }
  return std::nullopt;
}

namespace {

using typed::Typed;

PolicyOption p_option() {
  PolicyOption option = options::batch();
  option.key = "p";
  option.always = true;
  return option;
}

// Where fsdp does not gather before each use.
constexpr std::array kGatherOnce = {ParameterSync::AfterUpdate, ParameterSync::NextForward};

PolicyOption gather_option() {
  return {"gather", Decision::Sharding,
          [](Decisions& decisions, const Typed& typed) {
            decisions.sharding->gather = typed::word<ParameterSync>(typed, kGatherOnce);
          },
          [](const Decisions& decisions) {
            return std::string(to_string(decisions.sharding->gather));
          }};
}

constexpr std::array kReductions = {Collective::ReduceScatter, Collective::AllReduce};

// DeepSpeed's ZeRO-1 and 2 all-reduce whole buckets, also with "reduce_scatter": true.
PolicyOption reduce_option() {
  return {"reduce", Decision::Sharding,
          [](Decisions& decisions, const Typed& typed) {
            decisions.sharding->reduce = typed::word<Collective>(typed, kReductions);
          },
          [](const Decisions& decisions) {
            const Collective reduce = decisions.sharding->reduce;
            return reduce == Collective::ReduceScatter ? "" : std::string(to_string(reduce));
          }};
}

}  // namespace

PolicyDefinition sharded_policy() {
  return {.name = "sharded",
          .purpose = "reduce-scatter, update of one shard per rank, all-gather",
          .sizes = {options::cap()},
          .batches = {p_option(), options::tail()},
          .others = {options::overlap(), gather_option(), reduce_option(), options::replicas()},
          .decide =
              [](Decisions& decisions) {
                decisions.grouping = EqualSizes{};
                decisions.sharding = Sharding{};
                decisions.placement = BucketPlacement{.mode = BucketMode::Copy, .batch = 2};
              },
          .grouping = Firmness::DefaultOfShards,
          .groups_by = "buckets of one size, tensors cut at their ends"};
}

}  // namespace dovetail::schedule
