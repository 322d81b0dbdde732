// Runs of ops that the host issues, against going through them one by one.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/issued_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace dovetail::search {
namespace {

// Ops of 3, 1 and 4 ns whose issue takes 2 each, the stream free at 10 and the host at 9: they are issued at
// 11, 13, 15, start at 11, 14, 15, and end at 14, 15, 19.
TEST(IssuedRunsTest, AnOpStartsWhenItIsIssuedAndTheOneBeforeHasEnded) {
  const std::vector<std::int64_t> work = {3, 1, 4};
  const std::vector<std::int64_t> issue = {2, 2, 2};
  const IssuedRuns runs(work, issue);
  const IssuedRuns::Begin begin{.op = 0, .now = 10, .issued = 9};
  EXPECT_EQ(runs.run(begin, 3, 100).now, 19);
  EXPECT_EQ(runs.run(begin, 3, 100).work, 8);
  EXPECT_EQ(runs.run(begin, 3, 19).op, 3);
  EXPECT_EQ(runs.run(begin, 3, 18).op, 2);
  EXPECT_EQ(runs.run(begin, 3, 18).now, 15);
  EXPECT_EQ(runs.run(begin, 3, 13).op, 0);
  EXPECT_EQ(runs.run(begin, 3, 13).now, 10);
  EXPECT_EQ(runs.issue(1, 3), 4);
}

TEST(IssuedRunsTest, RandomRunsAreAsOneByOne) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::int64_t> work;
    std::vector<std::int64_t> issue;
    const std::int64_t count = random.between(1, 40);
    for (std::int64_t i = 0; i < count; ++i) {
      work.push_back(random.between(0, 9));
      issue.push_back(random.between(0, 9));
    }
    const IssuedRuns runs(work, issue);
    const auto first = static_cast<std::int32_t>(random.between(0, count));
    const auto target = static_cast<std::int32_t>(random.between(first, count));
    const IssuedRuns::Begin begin{
        .op = first, .now = random.between(0, 30), .issued = random.between(-20, 60)};
    const std::int64_t latest = begin.now + random.between(0, 200);
    IssuedRuns::Run expected{.op = first, .now = begin.now, .work = 0};
    std::int64_t issued = begin.issued;
    for (std::int32_t op = first; op < target; ++op) {
      const auto at = static_cast<std::size_t>(op);
      issued += issue[at];
      const std::int64_t end = std::max(expected.now, issued) + work[at];
      if (end > latest) break;
      expected = {.op = op + 1, .now = end, .work = expected.work + work[at]};
    }
    const IssuedRuns::Run found = runs.run(begin, target, latest);
    ASSERT_EQ(found.op, expected.op) << round;
    ASSERT_EQ(found.now, expected.now) << round;
    ASSERT_EQ(found.work, expected.work) << round;
  }
}

}  // namespace
}  // namespace dovetail::search
