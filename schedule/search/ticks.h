// Costs of buckets in whole ticks of 2^-k ns: the arithmetic that the exact methods share.
//
// LinearTicks rounds a piecewise linear cost once, for one problem (see exact.h, Exactness);
// FunctionTicks takes any cost in whole nanoseconds (k = 0). Both offer
//   cost(bytes)       ticks of one bucket
//   ticks(duration)   exact
//   duration(ticks)   to the nearest nanosecond, halves up; monotone, so minima survive it
//
// Range of LinearTicks: with n gradients, R the last ready time, A the largest |base_ns| and B the
// largest ns_per_byte, no time in any grouping exceeds R + n A + B * (all bytes), and no f - b S
// falls below minus B * (all bytes). k keeps twice that sum below 2^62.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/search/exact.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::schedule::internal {

using Ticks = std::int64_t;

// Checks what exact.h requires of a problem, and returns the sum of its sizes.
std::int64_t checked_total_bytes(const PartitionProblem& problem);

class LinearTicks {
 public:
  struct Piece {
    std::int64_t from;  // bytes
    Ticks base;
    Ticks slope;  // per byte
  };

  // Checks what exact.h requires of a problem and of pieces. Keeps the pieces that some bucket of
  // the problem can reach.
  LinearTicks(const PartitionProblem& problem, std::span<const LinearPiece> pieces);

  // A curve of one piece.
  LinearTicks(const PartitionProblem& problem, const AffineCost& cost);

  [[nodiscard]] std::span<const Piece> pieces() const { return pieces_; }
  [[nodiscard]] Ticks cost(std::int64_t bytes) const {
    std::size_t k = pieces_.size() - 1;
    while (pieces_[k].from > bytes) --k;
    return pieces_[k].base + pieces_[k].slope * bytes;
  }
  [[nodiscard]] Ticks ticks(Duration duration) const { return duration.count() << bits_; }
  [[nodiscard]] Duration duration(Ticks ticks) const {
    return Duration((ticks + ((Ticks{1} << bits_) >> 1)) >> bits_);
  }

 private:
  std::vector<Piece> pieces_;
  int bits_ = 0;  // the k of 2^-k ns
};

class FunctionTicks {
 public:
  // Checks what exact.h requires of a problem. REQUIRES: function outlives this.
  FunctionTicks(const PartitionProblem& problem, const BucketCost& function) : function_(function) {
    checked_total_bytes(problem);
  }

  [[nodiscard]] Ticks cost(std::int64_t bytes) const { return function_(Bytes(bytes)).count(); }
  [[nodiscard]] static Ticks ticks(Duration duration) { return duration.count(); }
  [[nodiscard]] static Duration duration(Ticks ticks) { return Duration(ticks); }

 private:
  const BucketCost& function_;
};

// Reads the chosen grouping out of begins (begins[j]: where the last bucket of the first j
// gradients begins), joins neighbours and returns the result.
//
// latest(bucket) is the latest end that keeps the finish, all later buckets as they are: the end of
// the grouping less their costs. A bucket and its successor are joined if the joint one ends by
// the successor's latest. Front to back, every joint bucket is tried again with the one before it:
// O(buckets) in all, as each trial either removes a bucket or ends the step.
template <class Cost>
Partition read_partition(const PartitionProblem& problem, std::span<const std::uint32_t> begins,
                         Ticks finish, const Cost& cost) {
  struct Bucket {
    std::size_t end;
    std::int64_t bytes;
    Ticks latest;  // end that keeps the finish
    Ticks free;    // when the link is free for it
    Ticks done;
  };
  std::size_t count = 0;
  for (std::size_t j = problem.size.size(); j > 0; j = begins[j]) ++count;
  std::vector<Bucket> buckets(count);
  Ticks latest = finish;
  for (std::size_t j = problem.size.size(), k = count; j > 0; j = begins[j]) {
    std::int64_t bytes = 0;
    for (std::size_t i = begins[j]; i < j; ++i) bytes += problem.size[i].count();
    buckets[--k] = Bucket{j, bytes, latest, 0, 0};
    latest -= cost.cost(bytes);
  }
  std::size_t kept = 0;
  for (Bucket bucket : buckets) {
    const Ticks ready = cost.ticks(problem.ready[bucket.end - 1]);
    bucket.free = kept > 0 ? buckets[kept - 1].done : 0;
    bucket.done = std::max(bucket.free, ready) + cost.cost(bucket.bytes);
    for (; kept > 0; --kept) {
      const Bucket& before = buckets[kept - 1];
      const std::int64_t bytes = before.bytes + bucket.bytes;
      const Ticks done = std::max(before.free, ready) + cost.cost(bytes);
      if (done > bucket.latest) break;
      bucket.bytes = bytes;
      bucket.free = before.free;
      bucket.done = done;
    }
    buckets[kept++] = bucket;
  }
  Partition partition;
  partition.finish = cost.duration(finish);
  partition.ends.reserve(kept);
  for (std::size_t k = 0; k < kept; ++k) partition.ends.push_back(buckets[k].end);
  return partition;
}

}  // namespace dovetail::schedule::internal
