// Maxima of all ranges of 2^k ops.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/issued_runs.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace dovetail::search {

IssuedRuns::IssuedRuns(std::span<const std::int64_t> work, std::span<const std::int64_t> issue)
    : work_(work.size() + 1), issue_(work.size() + 1) {
  std::vector<std::int64_t> level(work.size());
  for (std::size_t i = 0; i < work.size(); ++i) {
    work_[i + 1] = work_[i] + work[i];
    issue_[i + 1] = issue_[i] + issue[i];
    level[i] = issue_[i + 1] - work_[i];
  }
  for (std::size_t width = 1; !level.empty(); width *= 2) {
    std::vector<std::int64_t> wider(level.size() > width ? level.size() - width : 0);
    for (std::size_t i = 0; i < wider.size(); ++i) wider[i] = std::max(level[i], level[i + width]);
    late_.push_back(std::move(level));
    level = std::move(wider);
  }
}

IssuedRuns::Run IssuedRuns::run(const Begin& begin, std::int32_t target,
                                std::int64_t latest) const {
  const auto first = static_cast<std::size_t>(begin.op);
  auto last = static_cast<std::size_t>(target);
  if (first >= last) return {.op = begin.op, .now = begin.now};
  const std::int64_t free = begin.now - work_[first];
  const std::int64_t lead = begin.issued - issue_[first];
  auto level = static_cast<std::size_t>(std::bit_width(last - first)) - 1;
  const std::vector<std::int64_t>& late = late_[level];
  const std::int64_t all = std::max(late[first], late[last - (std::size_t{1} << level)]);
  std::int64_t now = work_[last] + std::max(free, lead + all);
  if (now > latest) {
    now = begin.now;
    if (work_[first + 1] + std::max(free, lead + late_[0][first]) > latest) {
      return {.op = begin.op, .now = now};
    }
    const std::size_t end = last;
    last = first;
    std::int64_t until = std::numeric_limits<std::int64_t>::min() / 2;
    for (++level; level-- > 0;) {
      const std::size_t next = last + (std::size_t{1} << level);
      if (next > end) continue;
      const std::int64_t more = std::max(until, late_[level][last]);
      const std::int64_t then = work_[next] + std::max(free, lead + more);
      if (then > latest) continue;
      last = next;
      until = more;
      now = then;
    }
  }
  return {.op = static_cast<std::int32_t>(last), .now = now, .work = work_[last] - work_[first]};
}

}  // namespace dovetail::search
