// NVIDIA Apex: DistributedFusedAdam, whose buckets of 100 MiB are reduce-scattered in batches of two, each waited
// for before the next is launched. Its rules are a policy of their own (schedule/policies/sharded.h); nothing is written for it.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/list.h"

namespace dovetail::frameworks {
namespace {

std::optional<Said> say_apex(const schedule::Policy& policy, const Gradients& /*gradients*/) {
  const bool is_run = shards_updates(policy) &&
                      policy.decisions.sharding->reduce == schedule::Collective::ReduceScatter &&
                      schedule::placement(policy).wait == schedule::WaitPoint::BeforeNextBatch;
  if (!is_run) return std::nullopt;
  return Said{"Apex DistributedFusedAdam", "", ToldBy::Default};
}

}  // namespace

std::vector<Framework> apex() {
  constexpr std::string_view kZero = "sharded:cap=100MiB,p=2,gather=next-forward";
  constexpr std::string_view kAdam = "sharded:cap=100MiB,p=2,wait=before-next-batch";
  return {{.id = "apex",
           .name = "Apex",
           .presets = {{"zero1", kZero}, {"zero2", kZero}, {"apex-sharded", kAdam}},
           .usual = {kAdam},
           .says = say_apex}};
}

}  // namespace dovetail::frameworks
