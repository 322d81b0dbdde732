// The buckets of parameters, and where they are gathered.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/gather.h"

#include <algorithm>
#include <utility>

#include "base/count.h"
#include "base/error.h"

namespace dovetail::schedule::internal {
namespace {

OpId update_of(const Program& program, BucketId parameters) {
  for (const Op& op : program.ops) {
    const auto* update = std::get_if<ShardUpdate>(&op.effect);
    if (update != nullptr && update->parameters == parameters) return op.id;
  }
  DOVETAIL_CHECK(false) << "no update writes bucket " << parameters;
  return {};
}

// The first and last op of the role that touch a parameter.
struct Uses {
  std::size_t first = kEnd;
  std::size_t last = 0;
};

IdTable<TensorId, Uses> parameter_uses(const Draft& draft, std::int32_t role) {
  IdTable<TensorId, Uses> uses;
  for (const GatherPlan& plan : draft.gathers) {
    for (const Placement& member : draft.out.bucket(plan.parameters).members) {
      uses[member.tensor].first = kEnd - 1;  // wanted; no op yet
    }
  }
  const Program& program = draft.program();
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (role_of(program, program.ops[i]) != role) continue;
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
  for (std::size_t i = position + 1; i < ops.size(); ++i) {
    if (role_of(draft.program(), ops[i]) != role) continue;
    for (const Placement& member : parameters.members) {
      if (std::ranges::count(ops[i].reads, member.tensor) > 0) return i;
      if (std::ranges::count(ops[i].writes, member.tensor) > 0) return i;
    }
  }
  return kEnd;
}

}  // namespace

void lay_out_parameters(Draft& draft, const std::vector<ShardedBucket>& sharded) {
  for (const ShardedBucket& bucket : sharded) {
    const BucketLayout& gradients = draft.out.bucket(bucket.gradients);
    BucketLayout layout = gradients;
    layout.bucket = bucket.parameters;
    layout.mode = BucketMode::Copy;
    layout.dtype = draft.program().tensor(bucket.members.front().tensor).dtype;
    for (std::size_t i = 0; i < bucket.members.size(); ++i) {
      const Slice& slice = bucket.members[i];
      const Tensor& parameter = draft.program().tensor(slice.tensor);
      if (parameter.dtype != layout.dtype) {
        throw InputError("schedule " + draft.schedule.policy + ": the parameters of bucket " +
                         std::to_string(bucket.gradients.value) + " mix dtypes: " + parameter.name);
      }
      layout.members[i] = {slice.tensor, gradients.members[i].offset, slice.first, slice.count};
    }
    const auto position = std::ranges::find(draft.schedule.buckets, bucket.gradients, &Bucket::id);
    draft.gathers.push_back(
        {.parameters = bucket.parameters,
         .bucket = static_cast<std::size_t>(position - draft.schedule.buckets.begin()),
         .update = update_of(draft.program(), bucket.parameters)});
    draft.out.buckets.push_back(std::move(layout));
  }
}

void place_gathers(const Draft& draft, RoleDraft& role) {
  if (draft.gathers.empty()) return;
  const bool next_forward = draft.schedule.parameters == ParameterSync::NextForward;
  const IdTable<TensorId, Uses> uses = parameter_uses(draft, role.role);
  for (std::size_t k = 0; k < draft.gathers.size(); ++k) {
    const GatherPlan& plan = draft.gathers[k];
    if (draft.buckets[plan.bucket].role != role.role) continue;
    const BucketLayout& parameters = draft.out.bucket(plan.parameters);
    Uses all;
    for (const Placement& member : parameters.members) {
      all.first = std::min(all.first, uses.at(member.tensor).first);
      all.last = std::max(all.last, uses.at(member.tensor).last);
    }
    Gather gather{.plan = k, .launch_after = kEnd, .wait_before = all.first};
    if (!next_forward) {
      const std::vector<Op>& ops = draft.program().ops;
      const auto update = std::ranges::find(ops, plan.update, &Op::id);
      gather.launch_after = static_cast<std::size_t>(update - ops.begin());
      gather.wait_before = all.last > gather.launch_after
                               ? next_use(draft, role.role, parameters, gather.launch_after)
                               : kEnd;
    }
    role.gathers.push_back(gather);
  }
  // Launch order: of need, or of the updates.
  std::ranges::stable_sort(role.gathers, {}, [&](const Gather& gather) {
    return next_forward ? gather.wait_before : gather.launch_after;
  });
}

std::string gather_report(const Draft& draft) {
  if (draft.gathers.empty()) return {};
  return "gather: " + counted(draft.gathers.size(), "bucket") + " of parameters " +
         (draft.schedule.parameters == ParameterSync::NextForward ? "in the next forward"
                                                                  : "after their update");
}

}  // namespace dovetail::schedule::internal
