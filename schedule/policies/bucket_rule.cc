// A count of what is open against the limit whose turn it is. It is the one place where "on reaching" and
// "before exceeding" differ: the first looks at the bucket with the gradient, the second without it.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/bucket_rule.h"

#include <algorithm>

namespace dovetail::schedule {

std::int64_t OpenBucket::size(const GradientSize& gradient) const {
  return rule_->unit == CountedIn::Bytes ? gradient.bytes.count() : gradient.elements;
}

void OpenBucket::close() {
  held_ = 0;
  limit_ = std::min(limit_ + 1, rule_->limits.size() - 1);
}

bool OpenBucket::closes_before(const GradientSize& next) {
  const bool is_full = rule_->closes != Closes::OnReaching && held_ > 0 &&
                       size(next) > rule_->limits[limit_] - held_;
  if (is_full) close();
  return is_full;
}

bool OpenBucket::closes_with(const GradientSize& added) {
  held_ += size(added);
  const bool is_full = rule_->closes == Closes::OnReaching && held_ >= rule_->limits[limit_];
  if (is_full) close();
  return is_full;
}

std::vector<std::size_t> bucket_ends(std::span<const GradientSize> gradients,
                                     const BucketRule& rule) {
  if (rule.closes == Closes::FromLast) {
    const std::vector<GradientSize> turned(gradients.rbegin(), gradients.rend());
    BucketRule forward = rule;
    forward.closes = Closes::BeforeExceeding;
    std::vector<std::size_t> ends = bucket_ends(turned, forward);
    for (std::size_t& end : ends) end = gradients.size() - end;
    std::ranges::reverse(ends);
    if (ends.empty()) return ends;
    ends.erase(ends.begin());  // where the last one to be filled ends: at nothing
    ends.push_back(gradients.size());
    return ends;
  }
  OpenBucket open(rule);
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (open.closes_before(gradients[i])) ends.push_back(i);
    if (open.closes_with(gradients[i])) ends.push_back(i + 1);
  }
  if (!gradients.empty() && (ends.empty() || ends.back() != gradients.size())) {
    ends.push_back(gradients.size());
  }
  return ends;
}

}  // namespace dovetail::schedule
