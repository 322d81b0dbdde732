// Costs of buckets in whole ticks of 2^-k ns: the arithmetic that the exact methods share.
//
// LinearTicks rounds a piecewise linear cost once, for one problem (see exact.h, Exactness). It offers
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

#include "search/exact.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::search::internal {

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

// What an exact method found: finish[j] = f(j), and begins[j], where the last bucket of the first j
// gradients begins to reach it.
struct Solution {
  std::span<const Ticks> finish;
  std::span<const std::uint32_t> begins;
};

// Follows begins from the end and joins each bucket with the one before it as long as the joint one
// ends by `latest`, the end that keeps the finish with all later buckets as chosen.
template <class Cost>
Partition read_partition(const PartitionProblem& problem, const Solution& solution,
                         const Cost& cost) {
  const auto bytes_of = [&](std::size_t begin, std::size_t end) {
    std::int64_t bytes = 0;
    for (std::size_t i = begin; i < end; ++i) bytes += problem.size[i].count();
    return bytes;
  };
  Partition partition;
  std::size_t end = problem.size.size();
  Ticks latest = solution.finish[end];
  partition.finish = cost.duration(latest);
  while (end > 0) {
    const Ticks ready = cost.ticks(problem.ready[end - 1]);
    std::size_t begin = solution.begins[end];
    std::int64_t bytes = bytes_of(begin, end);
    Ticks taken = cost.cost(bytes);
    while (begin > 0) {
      const std::size_t before = solution.begins[begin];
      const std::int64_t joint_bytes = bytes + bytes_of(before, begin);
      const Ticks joint = cost.cost(joint_bytes);
      if (std::max(ready, solution.finish[before]) + joint > latest) break;
      begin = before;
      bytes = joint_bytes;
      taken = joint;
    }
    partition.ends.push_back(end);
    latest -= taken;
    end = begin;
  }
  std::reverse(partition.ends.begin(), partition.ends.end());
  return partition;
}

}  // namespace dovetail::search::internal
