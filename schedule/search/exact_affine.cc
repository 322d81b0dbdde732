// The exact optimum for T(x) = a + b x in O(n): one monotone deque.
//
// f never falls, as a bucket's cost does not fall when it loses its last gradient. So for gradient
// j the starts split in two. Free starts, f(i) <= r_j: all begin at r_j, the last of them is the
// best, for it leaves the fewest bytes. Busy starts, f(i) > r_j: the least key f(i) - b S_i is the
// best. The border only moves right, because r_j and f rise. With key(j) = f(j) - b S_j the
// recursion is
//
//   key(j) = a + min(r_j - b S_free, least busy key)
//
// Suits any regime; time does not depend on it. Does not suit measured curves (exact_piecewise.cc).
// Tests: ExactTest, against enumeration and against the O(n^2) form.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/search/min_window.h"
#include "schedule/search/ticks.h"

#include <memory>

namespace dovetail::schedule {

Partition exact_partition(const PartitionProblem& problem, const AffineCost& cost) {
  using internal::Ticks;
  const internal::LinearTicks linear(problem, cost);
  const Ticks base = linear.pieces()[0].base;
  const Ticks slope = linear.pieces()[0].slope;
  const std::size_t n = problem.size.size();
  if (n == 0) return {};

  const auto finish = std::make_unique_for_overwrite<Ticks[]>(n + 1);
  const auto begins = std::make_unique_for_overwrite<std::uint32_t[]>(n + 1);
  finish[0] = 0;
  internal::MinWindow busy;
  std::uint32_t free = 0;  // the last free start
  Ticks free_bytes = 0;    // b S_free
  Ticks bytes = 0;         // b S_j
  for (std::uint32_t j = 1; j <= n; ++j) {
    const Ticks ready = linear.ticks(problem.ready[j - 1]);
    while (free + 1 < j && finish[free + 1] <= ready) {
      free_bytes += slope * problem.size[free].count();
      ++free;
    }
    busy.drop_through(free);
    Ticks least = ready - free_bytes;
    begins[j] = free;
    if (!busy.empty() && busy.front().key <= least) {
      least = busy.front().key;
      begins[j] = busy.front().start;
    }
    bytes += slope * problem.size[j - 1].count();
    finish[j] = least + base + bytes;
    busy.push(j, least + base);
  }
  return internal::read_partition(problem, {begins.get(), n + 1}, finish[n], linear);
}

}  // namespace dovetail::schedule
