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

#include "base/error.h"
#include "exports/python_text.h"
#include "exports/restriction.h"
#include "exports/writers.h"

namespace dovetail::exports {
namespace {

using schedule::OwedGradient;
using schedule::Schedule;

std::vector<std::vector<TensorId>> groups_of(const std::vector<OwedGradient>& owed,
                                             std::int64_t elements) {
  std::vector<std::vector<TensorId>> groups;
  std::int64_t open = 0;
  for (const OwedGradient& gradient : owed) {
    if (groups.empty() || open + gradient.numel > elements) {
      groups.emplace_back();
      open = 0;
    }
    groups.back().push_back(gradient.tensor);
    open += gradient.numel;
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

struct Chosen {
  std::int64_t elements = 0;
  std::vector<std::vector<TensorId>> groups;
};

// The size whose buckets have the shortest predicted step; of equals the smallest.
Chosen choose(const schedule::Program& program, const Schedule& schedule, const Machine& machine) {
  const std::vector<OwedGradient> owed = schedule::owed_gradients(program);
  std::optional<Duration> best;
  std::set<std::vector<std::vector<TensorId>>> seen;
  Chosen chosen;
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

}  // namespace

Export export_deepspeed(const schedule::Plan& plan, const Machine& machine,
                        const ExportOptions& options) {
  require_no_pipeline(plan, "DeepSpeed");
  require_one_group(plan, "DeepSpeed");
  const std::vector<OwedGradient> owed = schedule::owed_gradients(plan.program);
  for (const OwedGradient& gradient : owed) {
    if (gradient.dtype == owed.front().dtype) continue;
    throw InputError("export: the plan's gradients have several dtypes; DeepSpeed holds one");
  }
  Restriction left(plan, machine);
  left.give_up("reduce-scatter: ZeRO all-reduces buckets that belong to several ranks", all_reduce);
  give_up_the_usual(left, "DeepSpeed");
  left.give_up("gradients as views of buckets: ZeRO copies",
               [](Schedule& schedule) { use_mode(schedule, schedule::BucketMode::Copy); });
  left.give_up("several reductions in flight: ZeRO waits for the last before the next",
               wait_for_the_previous);
  const Chosen chosen = choose(plan.program, left.schedule(), machine);
  left.give_up("buckets of the plan's sizes: ZeRO has one size for all", [&](Schedule& schedule) {
    regroup(schedule, chosen.groups);
    wait_for_the_previous(schedule);
  });
  Export result = left.result();
  Bytes total;
  for (const OwedGradient& gradient : owed) total += gradient.bytes;
  const schedule::ProcessGroup& group = plan.program.group(owed.front().group);
  result.notes.push_back(
      "after the update ZeRO gathers the parameters, which nothing hides: about " +
      in_ms(machine.collective(schedule::Collective::AllGather, group, total)) +
      " more, less what the sharded update saves; neither is in the prediction");
  const int stage = 2;
  const std::string head_lines = head(Target::DeepSpeed, result, plan, options, "");
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
  result.text += "  ],\n  \"zero_optimization\": {\n    \"stage\": " + std::to_string(stage) +
                 ",\n    \"overlap_comm\": true,\n    \"contiguous_gradients\": true,\n"
                 "    \"reduce_bucket_size\": " +
                 std::to_string(chosen.elements) + ",\n    \"allgather_bucket_size\": " +
                 std::to_string(std::max<std::int64_t>(chosen.elements, 1)) + "\n  }\n}\n";
  result.paste =
      "\"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true, \"reduce_bucket_size\": " +
      std::to_string(chosen.elements) + "}";
  return result;
}

}  // namespace dovetail::exports
