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
#include "search/min_window.h"
#include "search/ticks.h"

#include <memory>

namespace dovetail::search {
namespace {

using internal::MinWindow;
using internal::Ticks;

struct Line {
  Ticks base;
  Ticks slope;
  // The time that the bytes of one gradient take.
  [[nodiscard]] Ticks moving(Bytes size) const { return slope * size.count(); }
};

// Sets finish[0..n] to f and returns b S_n. The line is a copy, and the window a local: a store to
// finish cannot change them, so they stay in registers.
Ticks fill_finish(const PartitionProblem& problem, const internal::LinearTicks& cost,
                  const Line line, Ticks* finish) {
  const std::size_t n = problem.size.size();
  const auto entries = std::make_unique_for_overwrite<MinWindow::Entry[]>(n);
  MinWindow busy(entries.get());
  std::uint32_t free = 0;  // the last free start
  Ticks free_bytes = 0;    // b S_free
  Ticks bytes = 0;         // b S_j
  finish[0] = 0;
  for (std::uint32_t j = 0; j < n; ++j) {
    if (j > 0) busy.push(j, finish[j] - bytes);
    const Ticks ready = cost.ticks(problem.ready[j]);
    for (; free < j && finish[free + 1] <= ready; ++free) {
      free_bytes += line.moving(problem.size[free]);
    }
    busy.drop_through(free);
    Ticks least = ready - free_bytes;
    if (!busy.empty()) least = std::min(least, busy.front().key);
    bytes += line.moving(problem.size[j]);
    finish[j + 1] = least + line.base + bytes;
  }
  return bytes;
}

// The ends of the buckets, `bytes` being b S_n.
std::vector<std::size_t> walk_back(const PartitionProblem& problem,
                                   const internal::LinearTicks& cost, const Line line,
                                   std::span<const Ticks> finish, Ticks bytes) {
  std::vector<std::size_t> ends;
  std::size_t next = problem.size.size();         // starts from here on were looked at
  Ticks most = finish[next] - line.base - bytes;  // X
  for (std::size_t end = next; end > 0; most -= line.base) {
    ends.push_back(end);
    const Ticks ready = cost.ticks(problem.ready[end - 1]);
    while (next > 0) {
      const Ticks before = bytes - line.moving(problem.size[next - 1]);  // b S of the next start
      if (ready - before > most) break;
      bytes = before;
      --next;
      if (finish[next] - bytes <= most) end = next;
    }
  }
  std::reverse(ends.begin(), ends.end());
  return ends;
}

}  // namespace

Partition exact_partition(const PartitionProblem& problem, const AffineCost& cost) {
  const internal::LinearTicks linear(problem, cost);
  const Line line{linear.pieces()[0].base, linear.pieces()[0].slope};
  const std::size_t n = problem.size.size();
  const auto finish = std::make_unique_for_overwrite<Ticks[]>(n + 1);
  const Ticks bytes = fill_finish(problem, linear, line, finish.get());
  Partition partition;
  partition.ends = walk_back(problem, linear, line, {finish.get(), n + 1}, bytes);
  partition.finish = linear.duration(finish[n]);
  return partition;
}

}  // namespace dovetail::search
