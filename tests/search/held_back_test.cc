// Policy exact holds launches back where that pays, also of a few gradients.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "models/clusters/cluster.h"
#include "schedule/policies/policies.h"
#include "schedule/program_json.h"
#include "search/planner.h"

namespace dovetail::search {
namespace {

struct HeldBack {
  const char* name;
  std::int64_t when_ready_us;  // the best step of all groupings that are launched when ready
  std::int64_t held_back_us;   // the step that the reviewer found
};

class HeldBackTest : public ::testing::TestWithParam<HeldBack> {};

TEST_P(HeldBackTest, TheExactPolicyFindsTheLaunchThatWaits) {
  const std::string folder = std::string(DOVETAIL_SOURCE_DIR) + "/tests/search/held_back/";
  const schedule::Program program =
      schedule::read_program(folder + GetParam().name + ".program.json");
  const models::Cluster cluster =
      models::load_cluster(folder + GetParam().name + ".cluster.json", folder);
  Planner planner(program, models::costs_for(cluster, program));
  const Candidate found = planner.evaluate(schedule::parse_policy("exact"));
  EXPECT_LE(found.summary.step_ns, GetParam().held_back_us * 1000 + 1000);
  EXPECT_LT(found.summary.step_ns, GetParam().when_ready_us * 1000);
  EXPECT_FALSE(planner.verified(found.schedule).roles.empty());
}

INSTANTIATE_TEST_SUITE_P(Reviewed, HeldBackTest,
                         ::testing::Values(HeldBack{"1381", 7'498, 7'310},
                                           HeldBack{"3345", 20'951, 18'087},
                                           HeldBack{"3519", 8'297, 7'598}),
                         [](const auto& of) { return std::string("Seed") + of.param.name; });

}  // namespace
}  // namespace dovetail::search
