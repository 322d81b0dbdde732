// shard_updates: each rank of a group updates its share of a bucket only (rules A5, A22, A24).
//
// Where a Schedule reduce-scatters buckets, the updates of all parameters whose gradients lie in
// them are replaced by one op per bucket:
//
//   optimizer  bucket3.update
//     reads   the bucket's gradients (or their sums), its parameters, the updates' other operands
//             (state, norm, learning rate)
//     writes  its parameters and the state
//     work    the replaced work's part that belongs to the bucket, divided by the group's size
//     effect  ShardUpdate{gradients = bucket 3, parameters = a fresh bucket}
//
// The parameter of a gradient: an update reads gradients and writes parameters, the i-th one
// belongs to the i-th other and has as many elements, but may have another type. A global norm of
// sharded gradients becomes a norm of shards (shard_norm.h).
//
// Where every micro-step reduces (SyncPoint::EveryMicroStep), a rank adds up its shards: the sums over
// micro-steps lie in a bucket of their own, cut like that of the gradients, the ops that add to them
// do so to shards (Accumulate::shard), and the bucket's update reads that.
//
// Refused, with the reason: updates that are opaque or not elementwise (LAMB), a gradient that lies
// only partly in such buckets, ops that would read shards as if they were whole.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/lower/rewrite/rewritten.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dovetail::schedule {

// A bucket that is reduce-scattered and the one in which its parameters are gathered: the same
// ranges of elements at the same elements of the buffer.
struct ShardedBucket {
  BucketId gradients;
  BucketId parameters;         // beyond all ids of the Schedule, as is
  std::vector<Slice> members;  // parameters, in the order of the bucket's gradients
  // That of the sums of shards over micro-steps, where there are any.
  std::optional<BucketId> sums = std::nullopt;
  friend bool operator==(const ShardedBucket&, const ShardedBucket&) = default;
};

struct Sharded {
  Program program;
  std::string report;  // words on one line; empty: no bucket is reduce-scattered
  std::vector<ShardedBucket> buckets;
};

// The op that updates the parameters of a reduce-scattered bucket: "bucket3.update".
std::string shard_update_name(BucketId bucket);

// REQUIRES: merge_micro_steps and fold_scaling ran with this Schedule; its buckets name gradients
// and groups of the Program.
std::variant<Sharded, Refusal> shard_updates(Program program, const Schedule& schedule);

}  // namespace dovetail::schedule
