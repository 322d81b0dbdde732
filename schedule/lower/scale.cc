// The scale pass: one factor per bucket, in front of its first collective or behind its last.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/scale.h"

#include "base/count.h"
#include "base/error.h"
#include "schedule/lower/rewrite/scale.h"

namespace dovetail::schedule::internal {
namespace {

Rational common_factor(const Draft& draft, const Bucket& bucket) {
  const Rational factor = draft.left.at(bucket.gradients.front().tensor);
  for (const Slice& slice : bucket.gradients) {
    const Rational other = draft.left.at(slice.tensor);
    if (other == factor) continue;
    throw InputError(draft.name(bucket) + ": its gradients need different factors: " +
                     draft.program().tensor(bucket.gradients.front().tensor).name + " " +
                     to_string(factor) + ", " + draft.program().tensor(slice.tensor).name + " " +
                     to_string(other));
  }
  return factor;
}

}  // namespace

void place_scales(Draft& draft) {
  const bool in_front = draft.schedule.scale == ScaleAt::BeforeCollective;
  std::size_t scaled = 0;
  for (std::size_t i = 0; i < draft.buckets.size(); ++i) {
    BucketPlan& plan = draft.buckets[i];
    plan.reduce = reduce_op(plan.reduce, draft.schedule.scale);
    plan.reduce_replicas = reduce_op(plan.reduce_replicas, draft.schedule.scale);
    const bool mine = in_front ? !plan.after : !plan.continued;
    const Rational factor = common_factor(draft, draft.schedule.buckets[i]);
    if (!mine || factor == Rational()) continue;
    (in_front ? plan.before : plan.afterwards) = factor;
    ++scaled;
  }
  if (scaled > 0) {
    draft.tell(LoweringPass::Scale, counted(scaled, "bucket") + " " +
                                        (in_front ? "before" : "after") + " their collective");
  }
}

}  // namespace dovetail::schedule::internal
