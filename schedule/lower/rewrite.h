// The passes that change the Program before anything is laid out (schedule/lower/rewrite, schedule/lower/pipeline).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedule/lower/draft.h"
#include "schedule/lower/rewrite/shard.h"

namespace dovetail::schedule::internal {

// A Draft of the rewritten Program, with Draft::travels and Draft::left filled. Each pass that did
// something leaves a line in the report; a refusal becomes an InputError that names the Schedule.
// `sharded` gets the buckets of parameters that the sharded updates need.
Draft rewrite(Program program, const Schedule& schedule, std::vector<ShardedBucket>& sharded);

}  // namespace dovetail::schedule::internal
