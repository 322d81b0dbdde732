// Which schedules cannot be told apart: those whose difference rests on a cost that is hardly known.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/alike.h"

#include <gtest/gtest.h>

#include <array>

#include "models/clusters/cluster.h"
#include "models/workloads/workload.h"
#include "schedule/policies/policies.h"

namespace dovetail::search {
namespace {

TEST(AlikeTest, ARowIsAlikeWhereTheCostsMayTurnTheOrder) {
  const std::string data = DOVETAIL_SOURCE_DIR "/models";
  const schedule::Program program = models::load_workload("resnet50", 8, data).program;
  const models::Costs costs =
      models::costs_for(models::load_cluster("a100x8", data + "/clusters"), program);
  std::vector<schedule::Schedule> made;
  for (const char* policy : {"threshold:cap=25MiB", "threshold:cap=8MiB", "no-overlap"}) {
    made.push_back(schedule::make_schedule(program, schedule::parse_policy(policy)));
  }
  std::vector<const schedule::Schedule*> schedules;
  for (const schedule::Schedule& one : made) schedules.push_back(&one);
  constexpr std::array<models::CostRange, 4> kExact = {};  // nothing is in doubt
  EXPECT_EQ(alike(program, costs, kExact, schedules, 0), std::vector<bool>(3));
  using enum models::CostPart;
  constexpr std::array kHardlyKnown = {
      models::CostRange{.part = Link, .low = 0.8, .high = 1.2},
      models::CostRange{.part = Latency, .low = 0.8, .high = 1.2},
      models::CostRange{.part = Compute, .low = 0.69, .high = 1.45},
      models::CostRange{.part = Host, .low = 0.5, .high = 2}};
  const std::vector<bool> found = alike(program, costs, kHardlyKnown, schedules, 0);
  EXPECT_FALSE(found[0]);  // the best itself
  EXPECT_TRUE(found[1]);
  EXPECT_FALSE(found[2]);  // never overlapping is worse whatever the costs are
}

}  // namespace
}  // namespace dovetail::search
