// The list of policies, and what holds for all of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/policies.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.h"
#include "policies/by_limits.h"
#include "policies/definition.h"
#include "policies/grouping.h"
#include "policies/report.h"
#include "policies/scaling.h"

namespace dovetail::schedule {
namespace {

const std::vector<PolicyDefinition>& definitions() {
  static const std::vector<PolicyDefinition> kAll = {
#define DOVETAIL_POLICY(kind, function) function##_policy(),
      DOVETAIL_POLICIES(DOVETAIL_POLICY)
#undef DOVETAIL_POLICY
  };
  return kAll;
}

// Sums of micro-steps cannot be reduced later than a reader within a micro-step.
std::optional<std::string> merge_refusal(const Program& program, const PolicySpec& spec) {
  if (spec.merge.micro_steps <= 1 || spec.merge.sync == SyncPoint::EveryMicroStep) {
    return std::nullopt;
  }
  const std::vector<OwedGradient> owed = owed_gradients(program);
  const BackwardReaders readers(program, owed);
  const std::optional<TensorId> read = readers.any();
  if (!read) return std::nullopt;
  return "backward op " + program.ops[readers.first(*read)].name + " reads the reduced " +
         program.tensor(*read).name +
         " in every micro-step, but sync=" + std::string(to_string(spec.merge.sync)) +
         " reduces only the sum of all micro-steps: use sync=every";
}

// GM8: what travels after the last micro-step cannot be launched within it.
void launch_after_micro_steps(Schedule& schedule) {
  if (schedule.merge.micro_steps <= 1 || schedule.merge.sync != SyncPoint::AfterLastMicroStep) {
    return;
  }
  for (Bucket& bucket : schedule.buckets) bucket.launch = LaunchAfterBackward{};
}

// The Program's collectives of forward and backward, as soon as each can, on a stream per process group
// behind those of the buckets. Sends stay: a pipeline places its own.
void place_own(const Program& program, const PolicySpec& spec, Schedule& schedule) {
  if (spec.collectives == OwnCollectives::Inline) return;
  std::int32_t next = 0;
  const auto behind = [&](const Placement& placement) {
    const auto* comm = std::get_if<CommStream>(&placement.stream);
    if (comm != nullptr) next = std::max(next, comm->index + 1);
  };
  for (const Bucket& bucket : schedule.buckets) behind(bucket);
  for (const ParameterGather& gather : schedule.gathers) behind(gather);
  std::map<GroupId, std::int32_t> streams;
  for (const Op& op : program.ops) {
    const auto* work = std::get_if<CollectiveWork>(&op.work);
    if (work == nullptr || work->kind == Collective::SendRecv) continue;
    if (op.phase == Phase::Optimizer) continue;
    const auto [stream, fresh] = streams.try_emplace(work->group, next);
    if (fresh) ++next;
    OpPlacement placement;
    placement.stream = CommStream{stream->second};
    placement.op = op.id;
    schedule.collectives.push_back(placement);
  }
}

PolicyResult decide_and_check(const Program& program, const PolicySpec& spec) {
  PolicyResult result;
  result.failure = merge_refusal(program, spec);
  if (result.failure) return result;
  const PolicyDefinition& policy = definition_of(spec.kind);
  DOVETAIL_CHECK(policy.apply != nullptr) << "policy " << policy.name << " needs costs";
  result = policy.apply(program, spec);
  launch_after_micro_steps(result.schedule);
  place_own(program, spec, result.schedule);
  // With micro-steps the positions are those of the unmerged program, in which the order is the same.
  if (!result.failure) result.failure = late_for_a_reader(program, result.schedule);
  if (result.failure) {
    result.schedule.buckets.clear();
    result.schedule.collectives.clear();
  }
  return result;
}

}  // namespace

const PolicyDefinition& definition_of(PolicyKind kind) {
  return definitions()[static_cast<std::size_t>(kind)];
}

const PolicyDefinition* find_definition(std::string_view name) {
  const auto found = std::ranges::find(definitions(), name, &PolicyDefinition::name);
  return found == definitions().end() ? nullptr : &*found;
}

std::vector<PolicyKind> all_policies() {
  std::vector<PolicyKind> kinds;
  for (std::size_t i = 0; i < definitions().size(); ++i)
    kinds.push_back(static_cast<PolicyKind>(i));
  return kinds;
}

Schedule by_limits(const Program& program, const PolicySpec& spec, const BucketRule& rule) {
  Schedule schedule = to_schedule(group_by_limits(program, travelling(program, spec), rule), spec);
  schedule.scale = spec.scale.value_or(ScaleAt::Collective);
  launch_in_batches(schedule, spec);
  return schedule;
}

PolicyResult scaled(const Program& program, Schedule schedule) {
  PolicyResult result;
  result.schedule = std::move(schedule);
  result.failure = scaling_refusal(program, result.schedule.scale);
  return result;
}

PolicyResult apply_policy(const Program& program, const PolicySpec& spec) {
  PolicyResult result = decide_and_check(program, spec);
  if (result.failure) return result;
  std::vector<std::string> lines = bucket_report(program, result.schedule);
  result.report.insert(result.report.end(), std::make_move_iterator(lines.begin()),
                       std::make_move_iterator(lines.end()));
  return result;
}

Schedule make_schedule(const Program& program, const PolicySpec& spec) {
  PolicyResult result = decide_and_check(program, spec);
  if (result.failure) throw InputError("policy " + to_string(spec) + ": " + *result.failure);
  return std::move(result.schedule);
}

std::optional<std::string> partition_refusal(const Program& program) {
  const std::vector<OwedGradient> owed = owed_gradients(program);
  for (const OwedGradient& gradient : owed) {
    if (key_of(program, gradient) == key_of(program, owed.front())) continue;
    return program.tensor(owed.front().tensor).name + " and " +
           program.tensor(gradient.tensor).name +
           " may not share a bucket: they differ in process group, dtype, reduction or stage";
  }
  return std::nullopt;
}

Schedule partition(const Program& program, std::span<const std::size_t> ends,
                   const PolicySpec& spec) {
  const std::vector<OwedGradient> owed = owed_gradients(program);
  DOVETAIL_CHECK(!ends.empty() && ends.back() == owed.size()) << "ends do not cover the gradients";
  Grouping grouping;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    DOVETAIL_CHECK(end > begin) << "bucket ends must rise";
    GradientGroup group;
    group.members.assign(owed.begin() + static_cast<std::ptrdiff_t>(begin),
                         owed.begin() + static_cast<std::ptrdiff_t>(end));
    for (const OwedGradient& gradient : group.members) {
      if (key_of(program, gradient) == key_of(program, group.members.front())) continue;
      throw InputError("bucket " + std::to_string(grouping.size()) +
                       " would mix process groups, dtypes, reductions or stages: " +
                       program.tensor(group.members.front().tensor).name + " and " +
                       program.tensor(gradient.tensor).name);
    }
    grouping.push_back(std::move(group));
    begin = end;
  }
  Schedule schedule = to_schedule(grouping, spec);
  schedule.scale = spec.scale.value_or(ScaleAt::Collective);
  if (const auto refusal = scaling_refusal(program, schedule.scale)) {
    throw InputError("policy " + to_string(spec) + ": " + *refusal);
  }
  launch_in_batches(schedule, spec);
  launch_after_micro_steps(schedule);
  place_own(program, spec, schedule);
  return schedule;
}

}  // namespace dovetail::schedule
