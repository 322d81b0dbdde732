// Buckets per key, bounded by readers.
//
// SPDX-License-Identifier: Apache-2.0
#include "policies/source_improved.h"

#include <algorithm>
#include <map>
#include <utility>

#include "policies/definition.h"
#include "policies/grouping.h"
#include "policies/scaling.h"

namespace dovetail::schedule {
namespace {

Grouping group_by_cap(const Program& program, const std::vector<OwedGradient>& owed, Bytes cap) {
  struct Open {
    std::vector<OwedGradient> members;
    Bytes bytes;
    std::size_t bound = BackwardReaders::kNone;  // the first reader of a member
  };
  const BackwardReaders readers(program, owed);
  std::map<BucketKey, Open> open;
  Grouping groups;
  for (const OwedGradient& gradient : owed) {
    Open& bucket = open[key_of(program, gradient)];
    const bool read = gradient.producer_index >= bucket.bound;
    if (!bucket.members.empty() && (read || bucket.bytes + gradient.bytes > cap)) {
      groups.push_back({std::exchange(bucket, {}).members, read ? "reader" : "cap"});
    }
    bucket.members.push_back(gradient);
    bucket.bytes += gradient.bytes;
    bucket.bound = std::min(bucket.bound, readers.first(gradient.tensor));
  }
  for (auto& [key, bucket] : open) groups.push_back({std::move(bucket.members), "end"});
  // A bucket must not stand behind one that is ready later: it would be launched as late.
  std::ranges::stable_sort(
      groups, {}, [](const GradientGroup& group) { return group.members.back().producer_index; });
  return groups;
}

void use_streams(Schedule& schedule, const PolicySpec& spec) {
  std::map<GroupId, std::int32_t> streams;
  for (Bucket& bucket : schedule.buckets) {
    const auto next = static_cast<std::int32_t>(streams.size());
    const std::int32_t index = streams.try_emplace(bucket.group, next).first->second;
    bucket.stream = CommStream{index % spec.max_streams};
    if (spec.overlap == Choice::No) bucket.launch = LaunchAfterBackward{};
  }
}

PolicyResult grouped(const Program& program, const PolicySpec& spec, const Scaling& scaling) {
  PolicyResult result;
  result.failure = scaling_refusal(program, scaling.at);
  const std::vector<OwedGradient> owed = travelling(program, spec);
  result.schedule = to_schedule(group_by_cap(program, owed, spec.threshold), spec);
  result.schedule.scale = scaling.at;
  result.report.push_back("scaling " + std::string(to_string(scaling.at)) + ": " + scaling.reason);
  launch_in_batches(result.schedule, spec);
  use_streams(result.schedule, spec);
  return result;
}

}  // namespace

PolicyResult source_improved(const Program& program, const PolicySpec& spec) {
  return grouped(program, spec, improved_scaling(program, spec.scale));
}

PolicyResult gradient_merge(const Program& program, const PolicySpec& spec) {
  return grouped(program, spec,
                 {spec.scale.value_or(ScaleAt::Collective),
                  spec.scale ? "as asked" : "the collectives average"});
}

namespace {

constexpr std::string_view kGroupsBy =
    "one open bucket per process group and dtype, capped in bytes";

}  // namespace

PolicyDefinition source_improved_policy() {
  return {.name = "source-improved",
          .purpose = "the same without its limits; caps count bytes",
          .sizes = {options::cap()},
          .batches = {options::batch(), options::tail()},
          .others = {options::overlap(), options::max_streams()},
          .apply = source_improved,
          .groups_by = kGroupsBy};
}

PolicyDefinition gradient_merge_policy() {
  return {.name = "gradient-merge",
          .purpose = "k micro-steps before one update",
          .sizes = {options::cap()},
          .batches = {options::batch(), options::tail()},
          .others = {options::overlap()},
          .set_defaults = [](PolicySpec& spec) { spec.merge.micro_steps = 4; },
          .apply = gradient_merge,
          .groups_by = kGroupsBy,
          .merges = true};
}

}  // namespace dovetail::schedule
