// One walk over the gradients, with the open bucket's bytes and the end of the one before it.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/merge_rule.h"

#include <algorithm>
#include <cmath>

namespace dovetail::search {

Partition merged_partition(const PartitionProblem& problem, const LinearPiece& cost,
                           schedule::Merges merges, Duration free_from) {
  const auto ns = [&](std::size_t i) { return static_cast<double>(problem.ready[i].count()); };
  const double worth =
      merges == schedule::Merges::WorthWaitingFor ? std::max(cost.base_ns, 0.0) : 0.0;
  Partition result;
  auto finish = static_cast<double>(free_from.count());
  Bytes held;
  for (std::size_t i = 0; i < problem.ready.size(); ++i) {
    held += problem.size[i];
    const double start = std::max(finish, ns(i));
    const double end = start + cost.base_ns + cost.ns_per_byte * static_cast<double>(held.count());
    if (i + 1 < problem.ready.size()) {
      const double next = ns(i + 1);
      if (next < end && (next < start || next - start < worth)) continue;
    }
    result.ends.push_back(i + 1);
    finish = end;
    held = Bytes(0);
  }
  result.finish = Duration(std::llround(finish));
  return result;
}

LinearPiece start_up_line(const models::CollectiveTable& all_reduce) {
  constexpr int kSizes = 63;
  constexpr std::int64_t kStep = 4 * 8192;
  double mean_ns = 0;
  double weighted = 0;  // by how far the size is from the mean one, in steps
  double squares = 0;
  constexpr double kMean = (kSizes + 1) / 2.0;
  for (int i = 1; i <= kSizes; ++i) {
    const auto ns = static_cast<double>(all_reduce.time(Bytes(i * kStep)).isolated.count());
    mean_ns += ns / kSizes;
    weighted += (i - kMean) * ns;
    squares += (i - kMean) * (i - kMean);
  }
  const double ns_per_byte = weighted / squares / static_cast<double>(kStep);
  return {.from = Bytes(0),
          .base_ns = mean_ns - ns_per_byte * kMean * static_cast<double>(kStep),
          .ns_per_byte = ns_per_byte};
}

}  // namespace dovetail::search
