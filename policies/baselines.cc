// The policies without a source: one bucket per gradient, one for all, or closed by a threshold; launched
// when ready, after backward, or (naive) on the compute stream.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "policies/by_limits.h"
#include "policies/definition.h"

namespace dovetail::schedule {
namespace {

const BucketRule kEach = {.limits = {1}};
const BucketRule kNever = {.limits = {std::int64_t{1} << 62}};

void launch_after_backward(Schedule& schedule) {
  for (Bucket& bucket : schedule.buckets) bucket.launch = LaunchAfterBackward{};
}

PolicyResult apply_naive(const Program& program, const PolicySpec& spec) {
  Schedule schedule = by_limits(program, spec, kEach);
  // The naive program reduces, then scales, after each producer (P5).
  for (Bucket& bucket : schedule.buckets) bucket.stream = InlineStream{};
  const bool averages = std::ranges::any_of(program.reductions, [](const Reduction& reduction) {
    return reduction.op == ReduceOp::Average;
  });
  if (!spec.scale && averages) schedule.scale = ScaleAt::AfterCollective;
  return scaled(program, std::move(schedule));
}

PolicyResult apply_no_overlap(const Program& program, const PolicySpec& spec) {
  Schedule schedule = by_limits(program, spec, kNever);
  launch_after_backward(schedule);
  return scaled(program, std::move(schedule));
}

PolicyResult apply_no_overlap_per_tensor(const Program& program, const PolicySpec& spec) {
  Schedule schedule = by_limits(program, spec, kEach);
  launch_after_backward(schedule);
  return scaled(program, std::move(schedule));
}

PolicyResult apply_per_tensor(const Program& program, const PolicySpec& spec) {
  return scaled(program, by_limits(program, spec, kEach));
}

PolicyResult apply_one_bucket(const Program& program, const PolicySpec& spec) {
  return scaled(program, by_limits(program, spec, kNever));
}

PolicyResult apply_threshold(const Program& program, const PolicySpec& spec) {
  return scaled(program, by_limits(program, spec,
                                   {.closes = spec.closes, .limits = {spec.threshold.count()}}));
}

PolicyOption threshold_option() {
  PolicyOption option = options::cap();
  option.key = "threshold";
  return option;
}

PolicyOption closes_option() {
  return {
      "closes",
      [](PolicySpec& spec, const typed::Typed& typed) {
        spec.closes = typed::word(typed, std::array{Closes::OnReaching, Closes::BeforeExceeding});
      },
      [](const PolicySpec& spec) { return std::string(to_string(spec.closes)); }};
}

}  // namespace

PolicyDefinition naive_policy() {
  return {.name = "naive",
          .purpose = "one collective per gradient on the compute stream: the reference",
          .apply = apply_naive};
}

PolicyDefinition no_overlap_policy() {
  return {.name = "no-overlap", .purpose = "one bucket, after backward", .apply = apply_no_overlap};
}

PolicyDefinition no_overlap_per_tensor_policy() {
  return {.name = "no-overlap-per-tensor",
          .purpose = "one bucket per gradient, after backward",
          .apply = apply_no_overlap_per_tensor};
}

PolicyDefinition per_tensor_policy() {
  return {.name = "per-tensor",
          .purpose = "one bucket per gradient, launched when ready",
          .batches = {options::batch(), options::tail()},
          .apply = apply_per_tensor};
}

PolicyDefinition one_bucket_policy() {
  return {.name = "one-bucket",
          .purpose = "one bucket, launched when its last gradient is ready",
          .batches = {options::batch(), options::tail()},
          .apply = apply_one_bucket};
}

PolicyDefinition threshold_policy() {
  return {.name = "threshold",
          .purpose = "a bucket closes once its bytes reach the threshold",
          .sizes = {threshold_option(), closes_option()},
          .batches = {options::batch(), options::tail()},
          .apply = apply_threshold};
}

}  // namespace dovetail::schedule
