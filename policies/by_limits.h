// What the policies share that close a bucket once it is large enough.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "policies/bucket_rule.h"
#include "policies/policies.h"

namespace dovetail::schedule {

// Buckets that close by the rule (group_by_limits), launched when ready or in batches. The scale is the
// spec's, else the collectives'.
Schedule by_limits(const Program& program, const PolicySpec& spec, const BucketRule& rule);

// The result, with the reason where this scaling cannot be applied.
PolicyResult scaled(const Program& program, Schedule schedule);

}  // namespace dovetail::schedule
