// Groups, the Schedule made of them, and readers within backward.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/grouping.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "schedule/visit.h"

namespace dovetail::schedule {

BucketKey key_of(const Program& program, const OwedGradient& gradient) {
  return {gradient.group, gradient.dtype, gradient.op, program.ops[gradient.producer_index].stage};
}

std::vector<OwedGradient> travelling(const Program& program, const PolicySpec& spec) {
  std::vector<OwedGradient> owed = owed_gradients(program);
  if (spec.merge.micro_steps > 1 && spec.merge.sync != SyncPoint::EveryMicroStep) {
    for (OwedGradient& gradient : owed) {
      gradient.dtype = spec.merge.dtype;
      gradient.bytes = element_size(gradient.dtype) * gradient.numel;
    }
  }
  return owed;
}

Grouping group_by_limits(const Program& program, const std::vector<OwedGradient>& owed,
                         const BucketRule& rule) {
  struct Open {
    OpenBucket bucket;
    std::vector<OwedGradient> members = {};
  };
  std::map<BucketKey, Open> open;
  Grouping result;
  const auto take = [&result](Open& from) {
    result.push_back({std::exchange(from.members, {}), "cap"});
  };
  for (const OwedGradient& gradient : owed) {
    Open& own = open.try_emplace(key_of(program, gradient), Open{OpenBucket(rule)}).first->second;
    const GradientSize size{gradient.bytes, gradient.numel};
    if (own.bucket.closes_before(size)) take(own);
    own.members.push_back(gradient);
    if (own.bucket.closes_with(size)) take(own);
  }
  // What is still open closes in the order in which its last gradient became ready; so does what a later
  // gradient has closed.
  const auto last = [](const GradientGroup& group) { return group.members.back().producer_index; };
  Grouping rest;
  for (auto& [key, own] : open) {
    if (!own.members.empty()) rest.push_back({std::move(own.members), "end"});
  }
  std::ranges::stable_sort(rest, {}, last);
  for (GradientGroup& group : rest) result.push_back(std::move(group));
  if (rule.closes == Closes::BeforeExceeding) std::ranges::stable_sort(result, {}, last);
  return result;
}

Schedule to_schedule(const Grouping& grouping, const PolicySpec& spec) {
  Schedule schedule;
  schedule.policy = to_string(spec);
  schedule.buckets.reserve(grouping.size());
  for (const GradientGroup& group : grouping) {
    Bucket bucket;
    bucket.id = BucketId{static_cast<std::int32_t>(schedule.buckets.size())};
    bucket.gradients.reserve(group.members.size());
    for (const OwedGradient& gradient : group.members) bucket.gradients.push_back(gradient.tensor);
    bucket.group = group.members.front().group;
    bucket.mode = spec.mode;
    bucket.wait = spec.wait;
    bucket.scope = spec.scope;
    bucket.closed_by = group.closed_by;
    schedule.buckets.push_back(std::move(bucket));
  }
  if (spec.merge.micro_steps > 1) schedule.merge = spec.merge;
  return schedule;
}

void launch_in_batches(Schedule& schedule, const PolicySpec& spec) {
  if (spec.batch == 0) return;
  const auto batch = static_cast<std::size_t>(spec.batch);
  const std::size_t whole = schedule.buckets.size() / batch;
  for (std::size_t i = 0; i < schedule.buckets.size(); ++i) {
    Bucket& bucket = schedule.buckets[i];
    if (i < whole * batch || spec.tail == Tail::LastGradient) {
      bucket.launch = LaunchInBatch{static_cast<std::int32_t>(i / batch)};
    } else {
      bucket.launch = LaunchAfterBackward{};
    }
  }
}

BackwardReaders::BackwardReaders(const Program& program, const std::vector<OwedGradient>& owed) {
  IdTable<TensorId, std::size_t> producer(kNone);
  producer.reserve(program.tensors.size());
  for (const OwedGradient& gradient : owed) producer[gradient.tensor] = gradient.producer_index;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].phase == Phase::Optimizer) continue;
    for (const TensorId id : program.ops[i].reads) {
      // kNone, the largest position, stands for tensors that are no owed gradients.
      if (producer.at(id) >= i || first_.at(id) != kNone) continue;
      first_[id] = i;
      if (!any_) any_ = id;
    }
  }
}

std::optional<std::string> late_for_a_reader(const Program& program, const Schedule& schedule) {
  const std::vector<OwedGradient> owed = owed_gradients(program);
  const BackwardReaders readers(program, owed);
  if (!readers.any()) return std::nullopt;
  IdTable<TensorId, std::size_t> producer(0);
  for (const OwedGradient& gradient : owed) producer[gradient.tensor] = gradient.producer_index;
  std::map<std::int32_t, std::size_t> batch_ready;
  const auto ready = [&](const Bucket& bucket) {
    std::size_t last = 0;
    for (const Slice& slice : bucket.gradients) last = std::max(last, producer.at(slice.tensor));
    return last;
  };
  for (const Bucket& bucket : schedule.buckets) {
    if (const auto* in = std::get_if<LaunchInBatch>(&bucket.launch)) {
      batch_ready[in->batch] = std::max(batch_ready[in->batch], ready(bucket));
    }
  }
  std::size_t previous = 0;
  for (const Bucket& bucket : schedule.buckets) {
    const std::size_t launch = visit(
        bucket.launch, [&](const LaunchWhenReady&) { return ready(bucket); },
        [&](const LaunchAfterOp&) { return ready(bucket); },
        [&](const LaunchAfterBackward&) { return program.ops.size(); },
        [&](const LaunchInBatch& in) { return batch_ready[in.batch]; });
    previous = std::max(previous, launch);
    for (const Slice& slice : bucket.gradients) {
      const std::size_t reader = readers.first(slice.tensor);
      if (reader == BackwardReaders::kNone || reader > previous) continue;
      return "backward op " + program.ops[reader].name + " reads the reduced " +
             program.tensor(slice.tensor).name + ", but bucket " + std::to_string(bucket.id.value) +
             " is launched only later";
    }
  }
  return std::nullopt;
}

}  // namespace dovetail::schedule
