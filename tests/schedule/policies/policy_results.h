// What tests of the source's policies look at: each bucket's size and why it was closed.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedule/policies/policies.h"
#include "schedule/program.h"

namespace dovetail::schedule {

inline const Effect kAdam = Update{};
inline const Effect kMomentum = Update{.elementwise = true, .rescale = Rational(1)};

inline std::vector<std::size_t> members(const PolicyResult& result) {
  std::vector<std::size_t> counts;
  for (const Bucket& bucket : result.schedule.buckets) counts.push_back(bucket.gradients.size());
  return counts;
}

inline std::vector<std::string> reasons(const PolicyResult& result) {
  std::vector<std::string> words;
  for (const Bucket& bucket : result.schedule.buckets) words.push_back(bucket.closed_by);
  return words;
}

}  // namespace dovetail::schedule
