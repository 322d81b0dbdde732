// Which buckets of a Schedule are sharded: reduce-scattered, so that each rank holds and updates
// only its part of the parameters, which are gathered again afterwards.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/schedule.h"

#include <algorithm>

namespace dovetail::schedule {

inline bool is_sharded(const Bucket& bucket) {
  return bucket.collective == Collective::ReduceScatter;
}

// Whether any bucket is.
inline bool is_sharded(const Schedule& schedule) {
  return std::ranges::any_of(schedule.buckets,
                             [](const Bucket& bucket) { return is_sharded(bucket); });
}

}  // namespace dovetail::schedule
