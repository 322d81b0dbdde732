// Which shard of a bucket a rank holds.
//
// The one place where backends learn it: lowering stored over which group each bucket is cut, so the two
// buckets of a sharded update are cut alike, and also where a calibration left their collectives out.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/program.h"
#include "schedule/scheduled_program.h"

#include <cstdint>

namespace dovetail::exec {

struct ShardCut {
  std::int64_t shards = 1;
  std::int64_t index = 0;  // of this rank's one
  friend bool operator==(const ShardCut&, const ShardCut&) = default;
};

// Throws InputError for a rank outside of the group, and for a buffer that has no equal shards.
ShardCut cut_of(const schedule::Program& program, const schedule::BucketLayout& layout, Rank rank);

}  // namespace dovetail::exec
