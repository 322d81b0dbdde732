// Sharded updates (rules A1 to A18): each bucket is reduce-scattered, each rank updates its shard of
// the parameters, and an all-gather completes them.
//
// Gradients are packed in gradient-ready order (the order of arrival of a recorded first step, A3)
// into buckets of one size, cut where a bucket ends (fragments.h). Launch points are those of every
// iteration but the first: batches of `p` buckets as they fill, the rest after backward, or with
// tail=last-gradient as soon as the last gradient is ready.
//
//   sharded:cap=100MiB,p=2     buckets 0 1 | 2 3 | 4     launched as batch 0, batch 1, after backward
//
// Where every gradient owes two reductions, the second group holds replicas of the shards, which are
// all-reduced after the reduce-scatter (A15).
//
// Refused, with the reason: updates that are not elementwise, gradients that backward reads, tensors
// that would have to be cut in view mode.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "policies/policies.h"

namespace dovetail::schedule {

// The process groups of the shards and, if there are any, of their replicas.
struct ShardGroups {
  GroupId shards;
  std::optional<GroupId> replicas;
  std::optional<std::string> refusal;
};
// `replicas`: the name of the group that holds replicas, or "". REQUIRES: the Program owes something.
ShardGroups find_shard_groups(const Program& program, const std::string& replicas);

// Why the updates of these gradients, as they travel, cannot work on shards; nothing: they can.
std::optional<std::string> sharding_refusal(const Program& program,
                                            const std::vector<OwedGradient>& owed, ScaleAt scale);

// Why tensors cannot be cut as the buckets do; nothing: they can, or none is.
std::optional<std::string> cut_refusal(const Program& program, const Schedule& schedule);

}  // namespace dovetail::schedule
