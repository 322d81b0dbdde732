// Which rule groups the gradients of which policy.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "schedule/policies/fsdp.h"
#include "schedule/policies/grouping.h"
#include "schedule/policies/pipeline.h"
#include "schedule/policies/report.h"
#include "schedule/policies/scaling.h"
#include "schedule/policies/sharded.h"
#include "schedule/policies/source_first_fit.h"
#include "schedule/policies/source_improved.h"

namespace dovetail::schedule {
namespace {

// Of the policies that close a bucket once it is large enough.
std::vector<Bytes> limits_of(const PolicySpec& spec) {
  constexpr Bytes kNever(std::int64_t{1} << 62);
  switch (spec.kind) {
    case PolicyKind::Naive:
    case PolicyKind::NoOverlapPerTensor:
    case PolicyKind::PerTensor:
      return {Bytes(1)};
    case PolicyKind::NoOverlap:
    case PolicyKind::OneBucket:
      return {kNever};
    case PolicyKind::Threshold:
      return {spec.threshold};
    case PolicyKind::TorchDdp:
      return {spec.first_bucket, spec.threshold};
    default:
      break;
  }
  DOVETAIL_CHECK(false) << "policy " << name(spec.kind) << " has no limits";
  return {};
}

// The naive program reduces, then scales, after each producer (P5).
void make_naive(const Program& program, const PolicySpec& spec, Schedule& schedule) {
  for (Bucket& bucket : schedule.buckets) bucket.stream = InlineStream{};
  const bool averages = std::ranges::any_of(program.reductions, [](const Reduction& reduction) {
    return reduction.op == ReduceOp::Average;
  });
  if (!spec.scale && averages) schedule.scale = ScaleAt::AfterCollective;
}

Schedule by_limits(const Program& program, const PolicySpec& spec) {
  const std::vector<Bytes> limits = limits_of(spec);
  Schedule schedule =
      to_schedule(group_by_limits(program, travelling(program, spec), limits), spec);
  schedule.scale = spec.scale.value_or(ScaleAt::Collective);
  if (spec.kind == PolicyKind::Naive) make_naive(program, spec, schedule);
  if (spec.kind == PolicyKind::NoOverlap || spec.kind == PolicyKind::NoOverlapPerTensor) {
    for (Bucket& bucket : schedule.buckets) bucket.launch = LaunchAfterBackward{};
  }
  launch_in_batches(schedule, spec);
  return schedule;
}

PolicyResult decide(const Program& program, const PolicySpec& spec) {
  switch (spec.kind) {
    case PolicyKind::SourceFirstFit:
      return source_first_fit(program, spec);
    case PolicyKind::SourceImproved:
      return source_improved(program, spec);
    case PolicyKind::GradientMerge:
      return gradient_merge(program, spec);
    case PolicyKind::Sharded:
      return sharded(program, spec);
    case PolicyKind::Fsdp:
      return fsdp(program, spec);
    case PolicyKind::Pipeline:
      return pipeline(program, spec);
    default:
      break;
  }
  PolicyResult result;
  result.schedule = by_limits(program, spec);
  result.failure = scaling_refusal(program, result.schedule.scale);
  return result;
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
         " reduces only the sum of all micro-steps (GM7, GM8): use sync=every";
}

// GM8: what travels after the last micro-step cannot be launched within it.
void launch_after_micro_steps(Schedule& schedule) {
  if (schedule.merge.micro_steps <= 1 || schedule.merge.sync != SyncPoint::AfterLastMicroStep) {
    return;
  }
  for (Bucket& bucket : schedule.buckets) bucket.launch = LaunchAfterBackward{};
}

PolicyResult decide_and_check(const Program& program, const PolicySpec& spec) {
  PolicyResult result;
  result.failure = merge_refusal(program, spec);
  if (result.failure) return result;
  result = decide(program, spec);
  launch_after_micro_steps(result.schedule);
  // With micro-steps the positions are those of the unmerged program, in which the order is the same.
  if (!result.failure) result.failure = late_for_a_reader(program, result.schedule);
  if (result.failure) result.schedule.buckets.clear();
  return result;
}

}  // namespace

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
  return schedule;
}

}  // namespace dovetail::schedule
