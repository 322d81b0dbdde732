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

// Throws InputError: a file that cannot be read, and what make_job refuses.
JobTrace load_job(const std::vector<std::string>& files, const JobOptions& options);

}  // namespace dovetail::imports
