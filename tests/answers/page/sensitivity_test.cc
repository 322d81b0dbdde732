// Costs scaled in one part, and what a plan loses where they are so, by hand.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/sensitivity.h"

#include <gtest/gtest.h>

#include "models/clusters/cluster.h"
#include "search/planner.h"
#include "tests/support/programs.h"

namespace dovetail::search {
namespace {

using models::CostPart;
using testing::us;

// T(bytes) = 20 us + 1 ns a byte; one op of 100 us.
models::Costs costs_of_one(const schedule::Program& program) {
  return testing::costs_of({.collective = testing::line(us(20), 1), .copy_ns_per_byte = 1},
                           program);
}

TEST(ScaledCostsTest, ChangeOnePartAlone) {
  const schedule::Program program = testing::chain({{us(100), us(50), Bytes(4000), us(10)}});
  const models::Costs costs = costs_of_one(program);
  const auto all_reduce = [&](const models::Costs& of) {
    return of.collective(schedule::Collective::AllReduce, program.groups.front(), Bytes(10'000))
        .isolated;
  };
  EXPECT_EQ(all_reduce(costs), us(30));
  const models::Costs link = models::scaled(costs, CostPart::Link, 2);
  EXPECT_EQ(all_reduce(link), us(40));
  EXPECT_EQ(link.op(program.ops[0], Rank{0}), us(100));
  const models::Costs latency = models::scaled(costs, CostPart::Latency, 2);
  EXPECT_EQ(all_reduce(latency), us(50));
  EXPECT_EQ(latency.copy(Bytes(1000)), us(1));
  const models::Costs compute = models::scaled(costs, CostPart::Compute, 2);
  EXPECT_EQ(all_reduce(compute), us(30));
  EXPECT_EQ(compute.op(program.ops[0], Rank{0}), us(200));
  EXPECT_EQ(compute.copy(Bytes(1000)), us(2));
}

TEST(ScaledCostsTest, ByOneIsTheSame) {
  const schedule::Program program = testing::chain({{us(100), us(50), Bytes(4000), us(10)}});
  const models::Costs costs = costs_of_one(program);
  for (const CostPart part : kAllOf<models::CostPart>)
    EXPECT_EQ(models::scaled(costs, part, 1), costs);
}

TEST(ScaledCostsTest, ScaleEveryTimeOfTheHost) {
  const schedule::Program program = testing::chain({{us(100), us(50), Bytes(4000), us(10)}});
  models::Costs costs = costs_of_one(program);
  costs.host = models::default_host(models::BackendKind::Cuda);
  const models::HostModel host = models::scaled(costs, CostPart::Host, 2).host;
  EXPECT_EQ(host.run_op, costs.host.run_op * 2);
  EXPECT_EQ(host.launch_latency, costs.host.launch_latency * 2);
  EXPECT_EQ(host.launch_gap, costs.host.launch_gap * 2);
}

// One gradient, all exposed: forward 100, backward 50, all-reduce 20 + 4, update 10. A link of 1.2 times the
// time takes 20 + 4.8, so the step 184.8; of 0.8 times 183.2.
TEST(SensitivityTest, OfOneExposedBucketIsTheCollectivesOwn) {
  const schedule::Program program = testing::chain({{us(100), us(50), Bytes(4000), us(10)}});
  const models::Costs costs = costs_of_one(program);
  Planner planner(program, costs);
  const Candidate found = planner.evaluate(schedule::parse_policy("exact"));
  EXPECT_EQ(found.summary.step_ns, 184'000);
  const auto rows =
      sensitivity({program, costs, found.schedule, schedule::parse_policy("torch-ddp")});
  ASSERT_EQ(rows.size(), 8U);
  EXPECT_EQ(rows[0].part, CostPart::Link);
  EXPECT_EQ(rows[0].plan, Duration(183'200));
  EXPECT_EQ(rows[1].plan, Duration(184'800));
  EXPECT_EQ(rows[2].plan, us(180));  // latency 16
  EXPECT_EQ(rows[5].plan, us(216));  // 160 x 1.2 + 24
  EXPECT_EQ(rows[7].plan, us(184));  // no host here
  for (const SensitivityRow& row : rows) {
    EXPECT_LE(row.best, row.plan);
    EXPECT_GE(row.usual.value(), row.plan);  // it copies
  }
}

}  // namespace
}  // namespace dovetail::search
