// The recordings of one job from their files, whoever recorded them.
//
//   JobTrace job = load_job({"rank0.json.gz", "rank1.json.gz"}, {});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/timeline/rank_set.h"

#include <string>
#include <vector>

namespace dovetail::imports {

// All that a file holds: of each process and device one. Throws InputError: it cannot be read.
std::vector<Recording> read_recordings(const std::string& file, const ByteLimits& limits);

// Throws InputError: a file that cannot be read, and what make_job refuses.
JobTrace load_job(const std::vector<std::string>& files, const JobOptions& options);

}  // namespace dovetail::imports
