// dovetail selftest --backend cuda under a launcher: what to know of every rank before a long run.
//
// Each rank looks at its own GPU (facts, clock, copies), the first rank of each host at the links between the
// GPUs that it sees, and all of them reduce gradients together: values are checked, and the bus bandwidth
// stands beside what was published for such a system. Rank 0 prints. A rank that has no GPU takes part in
// everything but the last, which is then skipped with its name.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "cli/selftest.h"
#include "exec/cuda/module.h"
#include "exec/launch/session.h"

namespace dovetail::cli {

// Whether a launcher started this process as one of several ranks.
bool is_under_launcher();

// On every rank; 0, or 3 when a row of any rank failed.
int cuda_selftest_of_job(const SelftestOptions& options, std::ostream& out);

// What all ranks do together, each on its `device`: a training job under several schedules, and all-reduces
// by size, with all values checked. REQUIRES: every rank has a GPU of its own.
std::vector<exec::selftest::Row> job_rows(const SelftestOptions& options,
                                          exec::launch::Session& session,
                                          const exec::cuda::Module& module, std::int32_t device);

}  // namespace dovetail::cli
