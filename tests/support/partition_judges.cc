// Enumeration walks the tree of groupings depth first, one bucket a level, and carries the time at
// which the link is free, so each of the 2^n prefixes costs one addition. Nothing is cut off. For any cost every
// start is tried for every end; a start whose link is free no earlier than the best end so far is passed over.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/partition_judges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/error.h"
#include "search/ticks.h"

namespace dovetail::testing {
namespace {

using search::internal::LinearTicks;
using search::internal::Ticks;

// Any cost, in whole nanoseconds.
class FunctionTicks {
 public:
  // REQUIRES: function outlives this.
  FunctionTicks(const PartitionProblem& problem, const BucketCost& function) : function_(function) {
    search::internal::checked_total_bytes(problem);
  }

  [[nodiscard]] Ticks cost(std::int64_t bytes) const { return function_(Bytes(bytes)).count(); }
  [[nodiscard]] static Ticks ticks(Duration duration) { return duration.count(); }
  [[nodiscard]] static Duration duration(Ticks ticks) { return Duration(ticks); }

 private:
  const BucketCost& function_;
};

constexpr std::size_t kMostEnumerated = 20;

class Enumeration {
 public:
  template <class Cost>
  Enumeration(const PartitionProblem& problem, const Cost& cost) : n_(problem.size.size()) {
    DOVETAIL_CHECK(n_ <= kMostEnumerated) << n_ << " gradients have too many groupings";
    for (std::size_t i = 0; i < n_; ++i) {
      ready_[i] = cost.ticks(problem.ready[i]);
      std::int64_t bytes = 0;
      for (std::size_t j = i; j < n_; ++j) {
        bytes += problem.size[j].count();
        cost_[i][j + 1] = cost.cost(bytes);
      }
    }
  }

  void visit(std::size_t begin, Ticks free, std::uint32_t ends) {
    for (std::size_t end = begin + 1; end < n_; ++end) {
      visit(end, bucket_end(begin, end, free), ends | 1U << (end - 1));
    }
    const Ticks last = bucket_end(begin, n_, free);
    const bool fewer = last == finish_ && std::popcount(ends) < std::popcount(ends_);
    if (last < finish_ || fewer) {
      finish_ = last;
      ends_ = ends;
    }
  }

  [[nodiscard]] Ticks finish() const { return finish_; }
  [[nodiscard]] std::vector<std::size_t> ends() const {
    std::vector<std::size_t> result;
    for (std::size_t i = 0; i + 1 < n_; ++i) {
      if ((ends_ >> i & 1U) != 0) result.push_back(i + 1);
    }
    result.push_back(n_);
    return result;
  }

 private:
  [[nodiscard]] Ticks bucket_end(std::size_t begin, std::size_t end, Ticks free) const {
    return std::max(free, ready_[end - 1]) + cost_[begin][end];
  }

  std::size_t n_;
  std::array<Ticks, kMostEnumerated> ready_{};
  std::array<std::array<Ticks, kMostEnumerated + 1>, kMostEnumerated> cost_{};
  Ticks finish_ = std::numeric_limits<Ticks>::max();
  std::uint32_t ends_ = 0;  // bit i: a bucket ends after gradient i
};

template <class Cost>
Partition enumerate(const PartitionProblem& problem, const Cost& cost) {
  if (problem.size.empty()) return {};
  Enumeration all(problem, cost);
  all.visit(0, 0, 0);
  return Partition{all.ends(), cost.duration(all.finish())};
}

template <class Cost>
std::vector<Duration> walk(const PartitionProblem& problem, std::span<const std::size_t> ends,
                           const Cost& cost) {
  const std::size_t n = problem.size.size();
  DOVETAIL_CHECK((ends.empty() ? 0 : ends.back()) == n) << "the last bucket ends at " << n;
  std::vector<Duration> finish;
  finish.reserve(ends.size());
  std::size_t begin = 0;
  Ticks free = 0;
  for (const std::size_t end : ends) {
    DOVETAIL_CHECK(begin < end && end <= n) << "a bucket ends at " << end << " after " << begin;
    std::int64_t bytes = 0;
    for (; begin < end; ++begin) bytes += problem.size[begin].count();
    free = std::max(free, cost.ticks(problem.ready[end - 1])) + cost.cost(bytes);
    finish.push_back(cost.duration(free));
  }
  return finish;
}

// max over i of r_i + base + slope * (bytes of i..n).
Ticks line_bound(const PartitionProblem& problem, const LinearTicks& cost, Ticks base,
                 Ticks slope) {
  Ticks bound = 0;
  Ticks rest = base;
  for (std::size_t i = problem.size.size(); i-- > 0;) {
    rest += slope * problem.size[i].count();
    bound = std::max(bound, cost.ticks(problem.ready[i]) + rest);
  }
  return bound;
}

Duration best_line_bound(const PartitionProblem& problem, const LinearTicks& cost) {
  if (problem.size.empty()) return Duration{};
  const auto pieces = cost.pieces();
  const std::int64_t total = search::internal::checked_total_bytes(problem);
  // A flat line at the cost of an empty bucket always lies below T. For each slope that occurs, the
  // highest line below T touches it at an end of a piece, or at the largest possible bucket.
  Ticks bound = line_bound(problem, cost, pieces[0].base, 0);
  for (const LinearTicks::Piece& direction : pieces) {
    Ticks base = std::numeric_limits<Ticks>::max();
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      const std::int64_t next = p + 1 < pieces.size() ? pieces[p + 1].from - 1 : total;
      for (const std::int64_t x : {pieces[p].from, next}) {
        base = std::min(base, pieces[p].base + (pieces[p].slope - direction.slope) * x);
      }
    }
    // Two buckets pay the intercept twice: only where it is not negative does one payment bound it.
    if (base >= 0) bound = std::max(bound, line_bound(problem, cost, base, direction.slope));
  }
  return cost.duration(bound);
}

}  // namespace

Partition enumerate_partitions(const PartitionProblem& problem,
                               std::span<const LinearPiece> pieces) {
  return enumerate(problem, LinearTicks(problem, pieces));
}
Partition enumerate_partitions(const PartitionProblem& problem, const BucketCost& cost) {
  return enumerate(problem, FunctionTicks(problem, cost));
}

std::vector<Duration> ends_of(const PartitionProblem& problem, std::span<const std::size_t> ends,
                              std::span<const LinearPiece> pieces) {
  return walk(problem, ends, LinearTicks(problem, pieces));
}
std::vector<Duration> ends_of(const PartitionProblem& problem, std::span<const std::size_t> ends,
                              const BucketCost& cost) {
  return walk(problem, ends, FunctionTicks(problem, cost));
}

Duration suffix_bound(const PartitionProblem& problem, std::span<const LinearPiece> pieces) {
  return best_line_bound(problem, LinearTicks(problem, pieces));
}

Partition best_of_any_cost(const PartitionProblem& problem, const BucketCost& cost) {
  const FunctionTicks exact(problem, cost);
  const std::size_t n = problem.size.size();
  if (n == 0) return {};
  std::vector<Ticks> finish(n + 1, 0);
  std::vector<std::uint32_t> begins(n + 1, 0);
  for (std::size_t j = 1; j <= n; ++j) {
    const Ticks ready = FunctionTicks::ticks(problem.ready[j - 1]);
    Ticks best = std::numeric_limits<Ticks>::max();
    std::int64_t bytes = 0;
    // From the nearest start to the farthest, so that of equal ends the latest start wins.
    for (std::size_t i = j; i-- > 0;) {
      bytes += problem.size[i].count();
      const Ticks start = std::max(ready, finish[i]);
      if (start >= best) continue;
      const Ticks taken = exact.cost(bytes);
      DOVETAIL_CHECK(taken >= 0) << "the cost of " << bytes << " bytes is negative";
      if (start + taken < best) {
        best = start + taken;
        begins[j] = static_cast<std::uint32_t>(i);
      }
    }
    finish[j] = best;
  }
  return search::internal::read_partition(problem, {finish, begins}, exact);
}

}  // namespace dovetail::testing
