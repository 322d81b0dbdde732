// Where the compute stream waits for each collective.
//
// Before the first op behind the launch that touches a member: one that reads the reduced gradient,
// or one that overwrites it (the next micro-step's backward), so no data hazard is left (PL3). Wait
// points ask for more: at the end of backward, or before the next batch is launched. A batch is the
// buckets of one LaunchInBatch, all buckets that are launched after backward, or else one bucket.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/draft.h"

namespace dovetail::schedule::internal {

// Fills the waits of RoleDraft::travels. REQUIRES: they are the buckets, and nothing else yet.
void place_waits(const Draft& draft, RoleDraft& role);

// "2 buckets at first use, 0 at end of backward"
std::string wait_report(const Draft& draft);

}  // namespace dovetail::schedule::internal
