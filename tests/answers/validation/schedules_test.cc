// Measured schedules: the table that is shipped, and how errors and order are counted.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/schedules.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace dovetail::yardsticks {
namespace {

TEST(SchedulesTest, EveryRowNamesAProfileThatIsThere) {
  const std::vector<ScheduleRow> rows =
      load_schedules(DOVETAIL_SOURCE_DIR "/answers/validation/data");
  EXPECT_EQ(rows.size(), 9U);
  for (const ScheduleRow& row : rows) {
    EXPECT_TRUE(std::filesystem::exists(row.workload)) << row.workload;
  }
}

TEST(SchedulesTest, CountsErrorsAndOrderWithinAGroup) {
  const std::vector<ScheduleRow> rows = {
      {.workload = "", .policy = "a", .group = "one", .measured = from_us(100)},
      {.workload = "", .policy = "b", .group = "one", .measured = from_us(200)},
      {.workload = "", .policy = "c", .group = "one", .measured = from_us(400)},
      {.workload = "", .policy = "d", .group = "two", .measured = from_us(400)}};
  const ScheduleScore score = score_schedules(
      rows, [](const ScheduleRow& row) { return row.policy == "b" ? from_us(500) : row.measured; });
  EXPECT_NEAR(score.mean_percent, 37.5, 1e-9);
  EXPECT_NEAR(score.worst_percent, 150, 1e-9);
  EXPECT_EQ(score.pairs, 3);
  EXPECT_EQ(score.in_order, 2);  // b before c is wrong
}

}  // namespace
}  // namespace dovetail::yardsticks
