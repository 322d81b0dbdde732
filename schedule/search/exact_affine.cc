// The exact optimum for T(x) = a + b x in O(n): one monotone deque, then one walk back.
//
// f never falls, as a bucket's cost does not fall when it loses its last gradient. So for gradient
// j the starts split in two. Free starts, f(i) <= r_j: all begin at r_j, the last of them is the
// best, for it leaves the fewest bytes. Busy starts, f(i) > r_j: the least key f(i) - b S_i is the
// best. The border only moves right, because r_j and f rise. With key(j) = f(j) - b S_j the
// recursion is
//
//   key(j) = a + min(r_j - b S_free, least busy key)
//
// The walk back chooses, from the last bucket on, the earliest start that keeps the finish. That
// gives the fewest buckets of all optimal groupings: if the last bucket of another one starts
// later, then moving the gradients between the two starts into it delays its end by b times their
// bytes, and takes at least as much from the buckets before. A bucket that must end by D can start
// at i if
//   r_e + a + b (S_e - S_i) <= D   and   key(i) <= X = D - a - b S_e
// and the bucket before it has X - a in place of X. So a start whose key was too large once is too
// large for ever, and the walk looks at each start once.
//
// Suits any regime; time does not depend on it. Does not suit measured curves (exact_piecewise.cc).
// Tests: ExactTest, against enumeration and against the O(n^2) form.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/search/min_window.h"
#include "schedule/search/ticks.h"

#include <memory>

namespace dovetail::schedule {
namespace {

using internal::Ticks;

class AffineSolver {
 public:
  AffineSolver(const PartitionProblem& problem, const internal::LinearTicks& cost)
      : problem_(problem),
        cost_(cost),
        base_(cost.pieces()[0].base),
        slope_(cost.pieces()[0].slope),
        n_(static_cast<std::uint32_t>(problem.size.size())),
        finish_(std::make_unique_for_overwrite<Ticks[]>(n_ + std::size_t{1})) {}

  Partition solve() {
    const Ticks bytes = fill_finish();
    Partition partition = walk_back(bytes);
    partition.finish = cost_.duration(finish_[n_]);
    return partition;
  }

 private:
  // The time that the bytes of gradient i take.
  [[nodiscard]] Ticks moving(std::size_t i) const { return slope_ * problem_.size[i].count(); }

  // Returns b S_n.
  Ticks fill_finish() {
    internal::MinWindow busy;
    std::uint32_t free = 0;  // the last free start
    Ticks free_bytes = 0;    // b S_free
    Ticks bytes = 0;         // b S_j
    finish_[0] = 0;
    for (std::uint32_t j = 1; j <= n_; ++j) {
      const Ticks ready = cost_.ticks(problem_.ready[j - 1]);
      for (; free + 1 < j && finish_[free + 1] <= ready; ++free) free_bytes += moving(free);
      busy.drop_through(free);
      Ticks key = base_ + ready - free_bytes;
      if (!busy.empty()) key = std::min(key, base_ + busy.front().key);
      bytes += moving(j - 1);
      finish_[j] = key + bytes;
      busy.push(j, key);
    }
    return bytes;
  }

  [[nodiscard]] Partition walk_back(Ticks bytes) const {
    Partition partition;
    Ticks most = finish_[n_] - base_ - bytes;  // X
    std::uint32_t next = n_;                   // starts from here on were looked at
    for (std::uint32_t end = n_; end > 0; most -= base_) {
      partition.ends.push_back(end);
      const Ticks ready = cost_.ticks(problem_.ready[end - 1]);
      while (next > 0) {
        const Ticks before = bytes - moving(next - 1);  // b S of the next start
        if (ready - before > most) break;
        bytes = before;
        --next;
        if (finish_[next] - bytes <= most) end = next;
      }
    }
    std::reverse(partition.ends.begin(), partition.ends.end());
    return partition;
  }

  const PartitionProblem& problem_;
  const internal::LinearTicks& cost_;
  Ticks base_;
  Ticks slope_;
  std::uint32_t n_;
  std::unique_ptr<Ticks[]> finish_;
};

}  // namespace

Partition exact_partition(const PartitionProblem& problem, const AffineCost& cost) {
  const internal::LinearTicks linear(problem, cost);
  return AffineSolver(problem, linear).solve();
}

}  // namespace dovetail::schedule
