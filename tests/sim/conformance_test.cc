// The twelve makespans that independent simulators agreed on, through our own front door; the
// largest two only in the benchmark.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "schedule/verify/verify.h"
#include "sim/compile.h"
#include "sim/player.h"
#include "tests/support/dag_program.h"

namespace dovetail::sim {
namespace {

class ConformanceMakespanTest : public ::testing::TestWithParam<support::Conformance> {};

// All but the largest, which takes gigabytes.
INSTANTIATE_TEST_SUITE_P(Published, ConformanceMakespanTest,
                         ::testing::ValuesIn(support::conformance_makespans().begin(),
                                             support::conformance_makespans().end() - 1),
                         [](const auto& test) {
                           return std::to_string(test.param.compute_ops) + "opsOn" +
                                  std::to_string(test.param.ranks);
                         });

TEST_P(ConformanceMakespanTest, BothWaysOfPlayingGiveTheMakespanThatOtherSimulatorsAgreedOn) {
  const support::Conformance& entry = GetParam();
  const support::BenchmarkDag dag = support::make_benchmark_dag({.compute_ops = entry.compute_ops});
  const support::DagPlan plan = support::plan_of(dag, entry.ranks);
  const StepGraph graph = compile(plan.program, plan.costs, 1).graph;
  const std::int64_t expected = Duration(entry.makespan).count();
  Workspace workspace;
  EXPECT_EQ(play_in_order(graph, workspace), expected);
  EXPECT_EQ(play_with_rates(graph, workspace), expected);
}

TEST(ConformanceTest, TheBenchmarkPlanIsLegal) {
  const support::BenchmarkDag dag = support::make_benchmark_dag({.compute_ops = 1000});
  const schedule::ScheduledProgram plan = support::plan_of(dag, 8).program;
  EXPECT_TRUE(schedule::verify(plan.program, plan).empty());
}

}  // namespace
}  // namespace dovetail::sim
