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
// A bucket is sharded over the group that its gradients owe a reduction to: expert parameters over another
// one than dense ones. Where gradients owe two, the second group holds replicas of the shards, which are
// all-reduced after the reduce-scatter (A15). Gradients and parameters may be of different types (f32 and
// bf16): a bucket is cut in elements, and its gradients as well as its parameters are all of one type.
//
// Refused, with the reason: updates that are not elementwise, gradients that backward reads, tensors
// that would have to be cut in view mode.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/policies/policies.h"

namespace dovetail::schedule {

// Finds for each gradient the type of its parameter and the replicas of its shards, and takes out what is
// owed over replicas; or says why not. `replicas`: the name of their group, or "": the second one that a
// gradient owes a reduction to.
std::optional<std::string> find_shards(const Program& program, const std::string& replicas,
                                       std::vector<OwedGradient>& owed);

// Why the updates of these gradients, as they travel, cannot work on shards; nothing: they can.
std::optional<std::string> sharding_refusal(const Program& program,
                                            const std::vector<OwedGradient>& owed, ScaleAt scale);

// Why tensors cannot be cut as the buckets do; nothing: they can, or none is.
std::optional<std::string> cut_refusal(const Program& program, const Schedule& schedule);

}  // namespace dovetail::schedule
