// A diagnosis as one Perfetto file: the last step of each rank as recorded, its replay, and, on the first
// rank, the replay with the best buckets.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "imports/kineto/diagnosis.h"
#include "imports/kineto/rank_set.h"
#include "traces/trace.h"

namespace dovetail::cli {

// The last step of each rank as it was recorded.
std::vector<traces::Trace> recorded_steps(const imports::JobTrace& job,
                                          const imports::Diagnosis& diagnosis);

// What the file shows.
std::vector<traces::Trace> step_traces(const imports::JobTrace& job,
                                       const imports::Diagnosis& diagnosis);
std::string perfetto_of(const imports::JobTrace& job, const imports::Diagnosis& diagnosis);

}  // namespace dovetail::cli
