// Slow and plain judges of search/exact.h: all groupings, one given grouping, a bound from below, and the optimum for a
// cost that is no curve.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/units.h"
#include "search/exact.h"

namespace dovetail::testing {

using search::LinearPiece;
using search::Partition;
using search::PartitionProblem;

// Any cost of a bucket, also one that falls.
using BucketCost = std::function<Duration(Bytes)>;

// The optimum by looking at all groupings. Among the best it returns one with the fewest buckets.
// REQUIRES: at most 20 gradients.
Partition enumerate_partitions(const PartitionProblem& problem,
                               std::span<const LinearPiece> pieces);
Partition enumerate_partitions(const PartitionProblem& problem, const BucketCost& cost);

// The optimum in O(n^2). Ties as those of search/exact.h.
Partition best_of_any_cost(const PartitionProblem& problem, const BucketCost& cost);

// When each bucket of a given grouping finishes. REQUIRES: ends rise strictly from above 0 to n.
std::vector<Duration> ends_of(const PartitionProblem& problem, std::span<const std::size_t> ends,
                              std::span<const LinearPiece> pieces);
std::vector<Duration> ends_of(const PartitionProblem& problem, std::span<const std::size_t> ends,
                              const BucketCost& cost);

// A time that no grouping beats, found without looking at groupings: gradients i..n can only leave
// from r_i on, and need at least one collective and all their bytes, so
//   bound = max over i of r_i + a + b * (bytes of i..n)
// for a line a + b * x, a >= 0, that lies nowhere above T; of several such lines the best is taken.
Duration suffix_bound(const PartitionProblem& problem, std::span<const LinearPiece> pieces);

}  // namespace dovetail::testing
