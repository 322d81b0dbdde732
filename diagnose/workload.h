// A traced job as a workload file: gradients with ready times, forward, backward and optimizer, and what
// its all-reduces cost. The file is a measured profile (models/profile.h); every command that takes
// --workload reads it.
//
//   TracedWorkload workload = workload_of(job, {.name = "step"});
//   workload.json, workload.notes
//
// Times are those of the step without communication: the trace replayed with collectives of no length
// (replay.h), the median over its steps, on the first rank given. Ready times count from the first GPU
// work that backward launched; of a gradient that DDP copies into its bucket it is the start of that
// copy. What lies between steps belongs to the optimizer. The table of all-reduces holds, for each size in
// the trace, its shortest time over steps and ranks.
//
// Leaves out: contention (in the recorded durations already), collectives other than DDP's (their time is
// not in the step), the host's cost of one more bucket (diagnose has it).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "diagnose/traced.h"

#include <string>
#include <utility>
#include <vector>

namespace dovetail::diagnose {

// The shortest time of an all-reduce over all ranks of the job, for each size seen, rising.
std::vector<std::pair<Bytes, Duration>> all_reduce_times(const JobTrace& job);

struct TracedWorkload {
  std::string json;
  std::vector<std::string> notes;  // what was assumed or could not be known
  std::size_t gradients = 0;
  Duration forward{}, backward{}, optimizer{};
};

struct WorkloadOptions {
  std::string name;  // of the workload
};

// Throws InputError where the trace has no DDP bucket or no backward on the GPU, or its replay is not
// that of the trace (replay.h).
TracedWorkload workload_of(const JobTrace& job, const WorkloadOptions& options);

}  // namespace dovetail::diagnose
