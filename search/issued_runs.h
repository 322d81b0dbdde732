// Runs of ops of the compute stream that start no earlier than the host has issued them, without going
// through them one by one.
//
// Op m starts at the end of the one before it, or when it is issued: lead + issue[0] + ... + issue[m]. So
//
//   end(j) = work[0 .. j-1] + max(now - work[0 .. first-1],
//                                 lead + max over first <= m < j of (issue[0 .. m] - work[0 .. m-1]))
//
// and the inner maximum of any range is the larger one of two that are known for ranges of 2^k ops.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::search {

class IssuedRuns {
 public:
  struct Begin {
    std::int32_t op = 0;
    std::int64_t now = 0;
    std::int64_t issued = 0;  // when an op before it that takes no host time would be
  };
  struct Run {
    std::int32_t op = 0;  // behind the last
    std::int64_t now = 0;
    std::int64_t work = 0;  // how long they took
  };

  IssuedRuns() = default;
  // Of ops that take work[j] ns and issue[j] ns of the host.
  IssuedRuns(std::span<const std::int64_t> work, std::span<const std::int64_t> issue);

  // The ops up to `target`, exclusive, that end by `latest`.
  [[nodiscard]] Run run(const Begin& begin, std::int32_t target, std::int64_t latest) const;
  [[nodiscard]] std::int64_t issue(std::int32_t begin, std::int32_t end) const {
    return issue_[static_cast<std::size_t>(end)] - issue_[static_cast<std::size_t>(begin)];
  }

 private:
  std::vector<std::int64_t> work_;               // [j]: of ops 0 .. j-1
  std::vector<std::int64_t> issue_;              // likewise
  std::vector<std::vector<std::int64_t>> late_;  // [k][m]: the maximum over ops m .. m + 2^k - 1
};

}  // namespace dovetail::search
