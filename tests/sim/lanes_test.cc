// Who meets in a collective, and that finding it takes as many looks as there are ranks, not their square.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/lanes.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/sim/role_programs.h"

namespace dovetail::sim {
namespace {

using Set = std::vector<std::int32_t>;

// Roles of `width` ranks that reduce within themselves and send to their neighbour.
struct Stages {
  explicit Stages(std::int32_t width, std::int32_t roles = 4)
      : plan(roles, width, {"compute"}), within(plan.within_roles("dp")) {
    for (std::int32_t role = 0; role + 1 < roles; ++role) {
      between.push_back(plan.pairs(role, role + 1));
    }
  }
  testing::RolePlan plan;
  GroupId within;
  std::vector<GroupId> between;
};

TEST(LanesTest, FoldedRolesMeetInTheirGroups) {
  const Stages stages(8);
  const schedule::ScheduledProgram plan = stages.plan.plan();
  const Lanes lanes(plan, 1);
  EXPECT_EQ(lanes.count(), 4);
  EXPECT_EQ(lanes.meeting(plan.program.group(stages.within), 2).lanes_of_node,
            (std::vector<Set>{{2}}));
  const Meeting send = lanes.meeting(plan.program.group(stages.between[1]), 1);
  EXPECT_EQ(send.lanes_of_node, (std::vector<Set>{{1, 2}}));
  EXPECT_EQ(send.seat_of_lane[1], 0);
  EXPECT_EQ(send.seat_of_lane[2], 1);
  EXPECT_EQ(send.seat_of_lane[3], std::nullopt);
}

TEST(LanesTest, UnfoldedRanksMeetInstanceByInstance) {
  const Stages stages(2);
  const schedule::ScheduledProgram plan = stages.plan.plan();
  const Lanes lanes(plan, 2);
  EXPECT_EQ(lanes.count(), 8);
  EXPECT_EQ(lanes.meeting(plan.program.group(stages.within), 1).lanes_of_node,
            (std::vector<Set>{{2, 3}}));
  // Rank 2 with rank 4, rank 3 with rank 5.
  EXPECT_EQ(lanes.meeting(plan.program.group(stages.between[1]), 1).lanes_of_node,
            (std::vector<Set>{{2, 4}, {3, 5}}));
}

// Of all meetings of a step. Eight times the ranks: at most eight times the looks, and a little for what does not grow.
TEST(LanesTest, LooksGrowNoFasterThanRanks) {
  for (const std::int64_t distinct : {std::int64_t{1}, std::int64_t{1} << 20}) {
    const auto looks = [distinct](std::int32_t width) {
      const Stages stages(width);
      const schedule::ScheduledProgram plan = stages.plan.plan();
      const Lanes lanes(plan, distinct);
      std::int64_t sum = 0;
      for (std::int32_t role = 0; role < 4; ++role) {
        sum += lanes.meeting(plan.program.group(stages.within), role).looks;
      }
      for (std::size_t i = 0; i < stages.between.size(); ++i) {
        const schedule::ProcessGroup& group = plan.program.group(stages.between[i]);
        sum += lanes.meeting(group, static_cast<std::int32_t>(i)).looks;
      }
      return sum;
    };
    const std::int64_t few = looks(250);
    EXPECT_GT(few, 0);
    EXPECT_LE(looks(2000), 8 * few + 100) << distinct;
  }
}

}  // namespace
}  // namespace dovetail::sim
