// MG-WFBP's rule: which gradients share a bucket, from when each is ready and what an all-reduce costs to start.
//
// A bucket of x bytes starts when its last gradient is ready and the bucket before it has ended, and takes a + b x. A
// gradient that is ready before the open bucket would end joins it if it is ready before that would start, or less than
// a later, as then the start-up that it saves is longer than the wait; otherwise the bucket is closed. ASC-WFBP
// (Merges::Queued) does not wait.
//
//   a = 10 us, ready at 0, 5 and 30, 8 us of bytes each: 0 would end at 18, 5 is less than 10 later: they join and
//   start at 5, end at 31; 30 is not less than 10 later: closed.
//
// It looks one gradient ahead, so the optimum (exact.h) can be better: over 3,000 random problems by 0.7 % in the mean
// and 28 % at most. On GoogLeNet's layers on 8 nodes both end at the same time (tests/search/merge_rule_test.cc).
// Source: HKBU-HPML/MG-WFBP at 507f409, distributed_optimizer.py, _generate_groups_mgwfbp.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/rates/collective_table.h"
#include "schedule/policies/decisions.h"
#include "search/exact.h"

namespace dovetail::search {

// The first bucket starts at `free_from` or later. REQUIRES: as exact_partition (exact.h), but that the start-up may be
// negative.
Partition merged_partition(const PartitionProblem& problem, const LinearPiece& cost,
                           schedule::Merges merges, Duration free_from = {});

// a and b as that source measures them: least squares over all-reduces alone of 8192 i elements of f32, i from 1 to 63.
LinearPiece start_up_line(const models::CollectiveTable& all_reduce);

}  // namespace dovetail::search
