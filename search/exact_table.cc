// The exact optimum for any cost of a bucket, in O(n^2): every start is tried.
//
// Suits measured tables that fall at a protocol switch, and costs that are no curve at all. f need
// not rise here, so no start can be ruled out by its place; only a start whose link is free no
// earlier than the best end so far is passed over without asking for its cost.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/ticks.h"

#include "base/error.h"

#include <limits>

namespace dovetail::search {

Partition exact_partition(const PartitionProblem& problem, const BucketCost& cost) {
  using internal::Ticks;
  const internal::FunctionTicks exact(problem, cost);
  const std::size_t n = problem.size.size();
  if (n == 0) return {};

  std::vector<Ticks> finish(n + 1, 0);
  std::vector<std::uint32_t> begins(n + 1, 0);
  for (std::size_t j = 1; j <= n; ++j) {
    const Ticks ready = internal::FunctionTicks::ticks(problem.ready[j - 1]);
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
  return internal::read_partition(problem, {finish, begins}, exact);
}

}  // namespace dovetail::search
