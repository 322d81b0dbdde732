// Packing, launching and refusing of sharded buckets.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/sharded.h"

#include "base/count.h"
#include "base/error.h"
#include "policies/definition.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "policies/fragments.h"
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
ShardGroups with_replicas(const Program& program, const PolicySpec& spec,
                          const std::set<GroupId>& first) {
  const Reduction& reduction = program.reductions.front();
  ShardGroups groups{.shards = reduction.group, .replicas = {}, .refusal = {}};
  for (const GroupId group : first) {
    const bool named = spec.replicas.empty() ? group != reduction.group
                                             : program.group(group).name == spec.replicas;
    if (named) groups.replicas = group;
  }
  if (!groups.replicas) {
    groups.refusal = "no gradient is reduced over a process group \"" + spec.replicas + "\"";
    return groups;
  }
  for (const GroupId group : first) {
    if (group != *groups.replicas) groups.shards = group;
  }
  return groups;
}

}  // namespace

ShardGroups find_shard_groups(const Program& program, const PolicySpec& spec) {
  const std::set<GroupId> first = groups_of(program, program.reductions.front().gradient);
  if (first.size() > 2) {
    return {.shards = {}, .replicas = {}, .refusal = "a gradient needs more than two reductions"};
  }
  if (first.size() == 2) {
    ShardGroups groups = with_replicas(program, spec, first);
    for (const Reduction& reduction : program.reductions) {
      if (groups_of(program, reduction.gradient) == first) continue;
      groups.refusal = program.tensor(reduction.gradient).name + " needs other reductions than " +
                       program.tensor(program.reductions.front().gradient).name;
    }
    return groups;
  }
  if (!spec.replicas.empty()) {
    return {.shards = {},
            .replicas = {},
            .refusal = "the gradients need no reduction over replicas \"" + spec.replicas + "\""};
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
std::optional<std::string> type_refusal(const Program& program, const PolicySpec& spec) {
  IdTable<TensorId, const OwedGradient*> travels(nullptr);
  const std::vector<OwedGradient> owed = travelling(program, spec);
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

std::optional<std::string> sharding_refusal(const Program& program, const PolicySpec& spec,
                                            const std::vector<OwedGradient>& owed) {
  std::optional<std::string> refusal = update_refusal(program, owed);
  if (!refusal) refusal = scaling_refusal(program, spec.scale.value_or(ScaleAt::Collective));
  return refusal ? refusal : type_refusal(program, spec);
}

namespace {

constexpr Bytes kAlignment = Bytes(128);  // of fragments (A4)

struct PackedBucket {
  GroupId group;
  std::vector<Slice> slices;
  std::vector<std::size_t> gradients;  // positions in the owed list
  Bytes unit;                          // of padding: ranks x 128 bytes
  bool full = false;
};

// All gradients of one key.
std::vector<PackedBucket> pack_key(const Program& program, const PolicySpec& spec,
                                   const std::vector<OwedGradient>& owed,
                                   const std::vector<std::size_t>& positions) {
  const OwedGradient& front = owed[positions.front()];
  const std::int64_t ranks = program.group(front.group).size();
  const BucketShape shape = bucket_shape(spec.threshold, element_size(front.dtype), ranks);
  std::vector<std::int64_t> sizes;
  for (const std::size_t position : positions) sizes.push_back(owed[position].numel);
  std::vector<PackedBucket> buckets;
  for (const Fragment& fragment : pack_fragments(sizes, shape)) {
    if (fragment.bucket == buckets.size()) {
      if (!buckets.empty()) buckets.back().full = true;
      buckets.push_back({front.group, {}, {}, kAlignment * ranks, false});
    }
    const OwedGradient& gradient = owed[positions[fragment.tensor]];
    const bool whole = fragment.count == gradient.numel;
    buckets.back().slices.push_back(whole ? Slice(gradient.tensor)
                                          : Slice(gradient.tensor, fragment.first, fragment.count));
    buckets.back().gradients.push_back(positions[fragment.tensor]);
  }
  return buckets;
}

std::vector<PackedBucket> pack(const Program& program, const PolicySpec& spec,
                               const std::vector<OwedGradient>& owed) {
  std::map<BucketKey, std::vector<std::size_t>> by_key;
  for (std::size_t i = 0; i < owed.size(); ++i) by_key[key_of(program, owed[i])].push_back(i);
  std::vector<PackedBucket> buckets;
  for (const auto& entry : by_key) {
    for (PackedBucket& bucket : pack_key(program, spec, owed, entry.second)) {
      buckets.push_back(std::move(bucket));
    }
  }
  std::ranges::stable_sort(buckets, {},
                           [](const PackedBucket& bucket) { return bucket.gradients.back(); });
  return buckets;
}

// Buckets stand in the order in which their last gradients are ready, so the first ones are full first:
// whole batches leave as gradients arrive, the rest after backward (A10, A11).
Schedule scheduled(const std::vector<PackedBucket>& packed, const PolicySpec& spec,
                   const ShardGroups& groups) {
  Schedule schedule = to_schedule({}, spec);
  schedule.parameters = spec.gather;
  for (const PackedBucket& from : packed) {
    Bucket bucket;
    bucket.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())};
    bucket.gradients = from.slices;
    bucket.group = from.group;
    bucket.collective = Collective::ReduceScatter;
    bucket.replicas = groups.replicas;
    bucket.mode = spec.mode;
    bucket.pad_to = from.unit;
    bucket.align_to = kAlignment;
    bucket.wait = spec.wait;
    bucket.scope = spec.scope;
    bucket.closed_by = from.full ? "cap" : "end";
    bucket.launch = LaunchAfterBackward{};
    schedule.buckets.push_back(std::move(bucket));
  }
  if (spec.overlap == Choice::Yes) launch_in_batches(schedule, spec);
  return schedule;
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

}  // namespace

PolicyResult sharded(const Program& program, const PolicySpec& spec) {
  PolicyResult result;
  if (program.reductions.empty()) {
    result.failure = "no gradient of the program is to be reduced";
    return result;
  }
  const ShardGroups groups = find_shard_groups(program, spec);
  result.failure = groups.refusal;
  std::vector<OwedGradient> owed = travelling(program, spec);
  if (groups.replicas) {
    std::erase_if(owed, [&](const OwedGradient& owes) { return owes.group == *groups.replicas; });
  }
  if (!result.failure) result.failure = sharding_refusal(program, spec, owed);
  const ScaleAt scale = spec.scale.value_or(ScaleAt::Collective);
  if (result.failure) return result;
  const std::vector<PackedBucket> packed = pack(program, spec, owed);
  result.schedule = scheduled(packed, spec, groups);
  result.schedule.scale = scale;
  result.failure = cut_refusal(program, result.schedule);
  DOVETAIL_CHECK(spec.batch > 0) << "batches of no bucket";
  const auto batch = static_cast<std::size_t>(spec.batch);
  const std::size_t early = packed.size() / batch * batch;
  result.report.push_back("batches of " + std::to_string(spec.batch) + ": " +
                          std::to_string(early) + " of " + counted(packed.size(), "bucket") +
                          " launched as gradients arrive, the rest in the final sync");
  return result;
}

namespace {

using typed::Typed;

PolicyOption p_option() {
  return {"p",
          [](PolicySpec& spec, const Typed& typed) {
            spec.batch = typed::small_number(typed, 1 << 16);
          },
          [](const PolicySpec& spec) { return std::to_string(spec.batch); }, true};
}

PolicyOption gather_option() {
  return {"gather",
          [](PolicySpec& spec, const Typed& typed) {
            spec.gather = typed::word(
                typed, std::array{ParameterSync::AfterUpdate, ParameterSync::NextForward});
          },
          [](const PolicySpec& spec) { return std::string(to_string(spec.gather)); }};
}

}  // namespace

PolicyDefinition sharded_policy() {
  return {
      .name = "sharded",
      .purpose = "reduce-scatter, update of one shard per rank, all-gather",
      .sizes = {options::cap()},
      .batches = {p_option(), options::tail()},
      .others = {options::overlap(), gather_option(), options::replicas()},
      .set_defaults =
          [](PolicySpec& spec) {
            spec.threshold = mib(100);
            spec.mode = BucketMode::Copy;
            spec.batch = 2;
          },
      .complete = [](PolicySpec& spec,
                     const TypedOptions& typed) { refuse_sums_of_whole_gradients(spec, typed); },
      .apply = sharded,
      .groups_by = "buckets of one size, tensors cut at their ends"};
}

}  // namespace dovetail::schedule
