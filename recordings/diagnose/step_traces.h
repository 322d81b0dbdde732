// A diagnosis as one Perfetto file: the last step of each rank as recorded, its replay, and, of the first
// rank, two steps of the imported workload with the best buckets.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>
#include "recordings/diagnose/traced.h"

#include "recordings/diagnose/diagnosis.h"
#include "traces/trace.h"

namespace dovetail::diagnose {

// The last step of each rank as it was recorded.
std::vector<traces::Trace> last_steps(const JobTrace& job, const Diagnosis& diagnosis);

// What the file shows, without remarks.
std::vector<traces::Trace> step_traces(const JobTrace& job, const Diagnosis& diagnosis);
// With phases, the operators of the host, an arrow from its launch to each collective, its bucket, and why it is exposed.
std::string perfetto_of(const JobTrace& job, const Diagnosis& diagnosis);

}  // namespace dovetail::diagnose
