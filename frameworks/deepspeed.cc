// DeepSpeed ZeRO 1 and 2: the one bucket size that comes nearest to a plan.
//
// ZeRO has no list. It walks the gradients as they become ready; before one is added that would bring
// the bucket above reduce_bucket_size elements the bucket is reduced, and a larger gradient travels alone
// (stage_1_and_2.py). With overlap_comm a reduction runs on a side stream, and the compute stream waits
// for it before the next one begins: one in flight. Gradients are copied into the bucket, which is
// all-reduced as it belongs to several ranks; parameters are gathered after the update, and nothing
// hides that.
//
// All sizes that make different buckets are too many, so those of the plan's buckets and two per
// doubling between the largest gradient and everything are simulated, and the fastest is taken.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "frameworks/list.h"
#include "frameworks/python_text.h"
#include "frameworks/restriction.h"
#include "schedule/policies/bucket_rule.h"
#include "schedule/policies/typed.h"

namespace dovetail::frameworks {
namespace {

using schedule::Closes;
using schedule::CountedIn;
using schedule::OwedGradient;
using schedule::Schedule;

std::vector<std::vector<TensorId>> groups_of(const std::vector<OwedGradient>& owed,
                                             std::int64_t elements) {
  std::vector<schedule::GradientSize> sizes;
  for (const OwedGradient& gradient : owed) sizes.push_back({gradient.bytes, gradient.numel});
  std::vector<std::vector<TensorId>> groups;
  std::size_t next = 0;
  for (const std::size_t end :
       bucket_ends(sizes, {Closes::BeforeExceeding, CountedIn::Elements, {elements}})) {
    groups.emplace_back();
    for (; next < end; ++next) groups.back().push_back(owed[next].tensor);
  }
  return groups;
}

std::set<std::int64_t> candidate_sizes(const schedule::Program& program, const Schedule& schedule,
                                       const std::vector<OwedGradient>& owed) {
  std::int64_t largest = 1;
  std::int64_t all = 0;
  for (const OwedGradient& gradient : owed) {
    largest = std::max(largest, gradient.numel);
    all += gradient.numel;
  }
  std::set<std::int64_t> sizes = {all};
  for (double size = static_cast<double>(largest); size < static_cast<double>(all);
       size *= std::sqrt(2.0)) {
    sizes.insert(static_cast<std::int64_t>(size));
  }
  for (const schedule::Bucket& bucket : schedule.buckets) {
    std::int64_t elements = 0;
    for (const schedule::Slice& slice : bucket.gradients) {
      elements += slice.elements(program.tensor(slice.tensor));
    }
    if (sizes.size() < 64) sizes.insert(elements);
  }
  return sizes;
}

struct Found {
  std::int64_t elements = 0;
  std::vector<std::vector<TensorId>> groups;
};

// The size whose buckets have the shortest predicted step; of equals the smallest.
Found choose(const schedule::Program& program, const Schedule& schedule, const Machine& machine) {
  const std::vector<OwedGradient> owed = schedule::owed_gradients(program);
  std::optional<Duration> best;
  std::set<std::vector<std::vector<TensorId>>> seen;
  Found chosen;
  for (const std::int64_t elements : candidate_sizes(program, schedule, owed)) {
    const auto groups = groups_of(owed, elements);
    if (!seen.insert(groups).second) continue;
    Schedule candidate = schedule;
    regroup(candidate, groups);
    wait_for_the_previous(candidate);
    const Duration step = machine.step(candidate);
    if (best && step >= *best) continue;
    best = step;
    chosen = {elements, groups};
  }
  return chosen;
}

void restrict_to_deepspeed(Restriction& left) {
  require_one_stage_and_group(left, "DeepSpeed");
  require_one_dtype(left, "DeepSpeed holds one");
  keep_parameters_whole(left, "ZeRO 1 and 2", schedule::ParameterSync::AfterUpdate);
  left.give_up("reduce-scatter: ZeRO all-reduces buckets that belong to several ranks", all_reduce);
  give_up_the_usual(left, "DeepSpeed", Reduces::InEveryMicroStep);  // stage 2
  left.give_up("gradients as views of buckets: ZeRO copies",
               [](Schedule& schedule) { use_mode(schedule, schedule::BucketMode::Copy); });
  left.give_up("several reductions in flight: ZeRO waits for the last before the next",
               wait_for_the_previous);
}

Export write_deepspeed(Restriction& left, const Writing& writing) {
  const std::vector<OwedGradient> owed = schedule::owed_gradients(left.program());
  const Found found = choose(left.program(), left.schedule(), writing.machine);
  left.give_up("buckets of the plan's sizes: ZeRO has one size for all", [&](Schedule& schedule) {
    regroup(schedule, found.groups);
    wait_for_the_previous(schedule);
  });
  Export result = left.result();
  Bytes total;
  for (const OwedGradient& gradient : owed) total += gradient.bytes;
  const schedule::ProcessGroup& group = left.program().group(owed.front().group);
  result.notes.push_back(
      "after the update ZeRO gathers the parameters, which nothing hides: about " +
      in_ms(writing.machine.collective(schedule::Collective::AllGather, group, total)) +
      " more, less what the sharded update saves; neither is in the prediction");
  const std::string head_lines = head(writing, result, "");
  // JSON has no comments: what is known stands under a key that DeepSpeed does not read.
  result.text = "{\n  \"dovetail\": [\n";
  std::size_t begin = 0;
  while (begin < head_lines.size()) {
    const std::size_t end = head_lines.find('\n', begin);
    const bool last = end + 1 >= head_lines.size();
    result.text += "    " + python_quoted(head_lines.substr(begin + 1, end - begin - 1)) +
                   (last ? "\n" : ",\n");
    begin = end + 1;
  }
  result.text +=
      "  ],\n  \"zero_optimization\": {\n    \"stage\": 2,\n    \"overlap_comm\": true,\n    "
      "\"contiguous_gradients\": true,\n"
      "    \"reduce_bucket_size\": " +
      std::to_string(found.elements) + ",\n    \"allgather_bucket_size\": " +
      std::to_string(std::max<std::int64_t>(found.elements, 1)) + "\n  }\n}\n";
  result.paste =
      "\"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true, \"reduce_bucket_size\": " +
      std::to_string(found.elements) + "}";
  return result;
}

constexpr std::int64_t kDeepspeedUsual = 500'000'000;

std::vector<std::int64_t> deepspeed_limits(std::optional<std::int64_t> elements,
                                           std::int64_t /*ranks*/) {
  return {elements.value_or(kDeepspeedUsual)};
}

Written deepspeed_setting(const Chosen& chosen) {
  const std::string size = "\"reduce_bucket_size\": " + std::to_string(chosen.number);
  return {size,
          "\"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true, "
          "\"contiguous_gradients\": true, " +
              size + "}"};
}

std::string deepspeed_policy(std::span<const Bytes> limits) {
  return "threshold:cap=" + schedule::typed::exact_size(limits.back()) +
         ",closes=before-exceeding,mode=copy,batch=1,wait=before-next-batch";
}

std::optional<Said> say_deepspeed(const schedule::Policy& policy, const Gradients& gradients) {
  const schedule::BucketPlacement place = schedule::placement(policy);
  const bool sums_whole = shards_updates(policy) &&
                          policy.decisions.sharding->reduce == schedule::Collective::AllReduce;
  if (sums_whole && place.launch == schedule::LaunchRule::AfterBackward) {
    return Said{"DeepSpeed ZeRO-1 and 2 without overlap_comm (export --to deepspeed)", "",
                ToldBy::File};
  }
  const schedule::ByLimits* closed = limits_of(policy);
  const bool is_run = closed != nullptr && closed->closes == Closes::BeforeExceeding &&
                      place.batch == 1 && place.mode == schedule::BucketMode::Copy &&
                      place.wait == schedule::WaitPoint::BeforeNextBatch;
  if (!is_run) return std::nullopt;
  const Written written =
      deepspeed_setting({.number = closed->cap.count() / gradients.element.count()});
  return Said{"DeepSpeed: " + written.setting, written.line};
}

}  // namespace

std::vector<Framework> deepspeed() {
  return {{.id = "deepspeed",
           .name = "DeepSpeed",
           .presets = {{"deepspeed", "sharded:cap=2000000000B,p=1,reduce=all-reduce,overlap=no"}},
           .size = SizeOption{.closes = Closes::BeforeExceeding,
                              .unit = CountedIn::Elements,
                              .limits = deepspeed_limits,
                              .write = deepspeed_setting,
                              .in_flight = {InFlight::One}},
           .policy = deepspeed_policy,
           .says = say_deepspeed,
           .not_replayed = {"ZeRO gathers all parameters after the update, which nothing hides"},
           .title = "DeepSpeed ZeRO 1 and 2",
           .writes = "the reduce_bucket_size that comes nearest",
           .restrict_to = restrict_to_deepspeed,
           .write = write_deepspeed}};
}

}  // namespace dovetail::frameworks
