// The policy of sharded updates: packs gradients into buckets of one size, chooses launch points,
// and refuses Programs whose updates cannot be cut into shards.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/sharded.h"

#include <set>

#include "base/error.h"
#include "policies/definition.h"
#include "policies/grouping.h"
#include "policies/scaling.h"

namespace dovetail::schedule {
namespace {

std::set<GroupId> groups_of(const Program& program, TensorId gradient) {
  std::set<GroupId> groups;
  for (const Reduction& reduction : program.reductions) {
    if (reduction.gradient == gradient) groups.insert(reduction.group);
  }
  return groups;
}

// Of a Program in which some gradient owes two reductions.
ShardGroups with_replicas(const Program& program, const std::string& replicas,
                          const std::set<GroupId>& first) {
  const Reduction& reduction = program.reductions.front();
  ShardGroups groups{.shards = reduction.group, .replicas = {}, .refusal = {}};
  for (const GroupId group : first) {
    const bool named =
        replicas.empty() ? group != reduction.group : program.group(group).name == replicas;
    if (named) groups.replicas = group;
  }
  if (!groups.replicas) {
    groups.refusal = "no gradient is reduced over a process group \"" + replicas + "\"";
    return groups;
  }
  for (const GroupId group : first) {
    if (group != *groups.replicas) groups.shards = group;
  }
  return groups;
}

}  // namespace

ShardGroups find_shard_groups(const Program& program, const std::string& replicas) {
  const std::set<GroupId> first = groups_of(program, program.reductions.front().gradient);
  if (first.size() > 2) {
    return {.shards = {}, .replicas = {}, .refusal = "a gradient needs more than two reductions"};
  }
  if (first.size() == 2) {
    ShardGroups groups = with_replicas(program, replicas, first);
    for (const Reduction& reduction : program.reductions) {
      if (groups_of(program, reduction.gradient) == first) continue;
      groups.refusal = program.tensor(reduction.gradient).name + " needs other reductions than " +
                       program.tensor(program.reductions.front().gradient).name;
    }
    return groups;
  }
  if (!replicas.empty()) {
    return {.shards = {},
            .replicas = {},
            .refusal = "the gradients need no reduction over replicas \"" + replicas + "\""};
  }
  return {.shards = *first.begin(), .replicas = {}, .refusal = {}};
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

// What travels must be as wide as the parameters that its update writes (the source asks the same of
// the types of its sync and its state).
std::optional<std::string> type_refusal(const Program& program,
                                        const std::vector<OwedGradient>& owed) {
  IdTable<TensorId, const OwedGradient*> travels(nullptr);
  for (const OwedGradient& gradient : owed) travels[gradient.tensor] = &gradient;
  for (const Op& op : program.ops) {
    if (!std::holds_alternative<Update>(op.effect)) continue;
    for (const TensorId read : op.reads) {
      const OwedGradient* gradient = travels.at(read);
      if (gradient == nullptr) continue;
      for (const TensorId written : op.writes) {
        const Tensor& parameter = program.tensor(written);
        if (parameter.kind != TensorKind::Parameter) continue;
        if (element_size(parameter.dtype) == element_size(gradient->dtype)) continue;
        const std::string own(to_string(parameter.dtype));
        return parameter.name + " is " + own + " and " + program.tensor(read).name +
               " travels as " + std::string(to_string(gradient->dtype)) +
               ", but a shard must lie alike in both: with k=, use sums=" + own;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> sharding_refusal(const Program& program,
                                            const std::vector<OwedGradient>& owed, ScaleAt scale) {
  std::optional<std::string> refusal = update_refusal(program, owed);
  if (!refusal) refusal = scaling_refusal(program, scale);
  return refusal ? refusal : type_refusal(program, owed);
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

}  // namespace

PolicyDefinition sharded_policy() {
  return {.name = "sharded",
          .purpose = "reduce-scatter, update of one shard per rank, all-gather",
          .sizes = {options::cap()},
          .batches = {p_option(), options::tail()},
          .others = {options::overlap(), gather_option(), options::replicas()},
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
