// The twelve makespans that independent simulators agreed on, through our own front door; the
// largest two only in the benchmark.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "schedule/verify.h"
#include "sim/engine.h"
#include "sim/graph.h"
#include "tests/support/dag_program.h"

namespace dovetail::sim {
namespace {

TEST(ConformanceTest, EveryEngineGivesTheMakespansThatOtherSimulatorsAgreedOn) {
  std::size_t compared = 0;
  for (const support::Conformance& entry : support::conformance_makespans()) {
    if (static_cast<std::int64_t>(entry.compute_ops) * entry.ranks > 900'000) continue;
    SCOPED_TRACE(std::to_string(entry.compute_ops) + " ops, " + std::to_string(entry.ranks) +
                 " ranks");
    const support::BenchmarkDag dag =
        support::make_benchmark_dag({.compute_ops = entry.compute_ops});
    const support::DagPlan plan = support::plan_of(dag, entry.ranks);
    const Graph graph = compile(plan.program, plan.costs, 1);
    const std::int64_t expected = Duration(entry.makespan).count();
    Workspace workspace;
    EXPECT_EQ(play_in_program_order(graph, workspace), expected);
    EXPECT_EQ(play_events(graph, workspace), expected);
    const std::vector<models::Contention> none(static_cast<std::size_t>(entry.ranks));
    EXPECT_EQ(play_contended(graph, none, workspace), expected);
    ++compared;
  }
  EXPECT_EQ(compared, 11u);
}

TEST(ConformanceTest, TheBenchmarkPlanIsLegal) {
  const support::BenchmarkDag dag = support::make_benchmark_dag({.compute_ops = 1000});
  const schedule::ScheduledProgram plan = support::plan_of(dag, 8).program;
  EXPECT_TRUE(schedule::verify(plan.program, plan).empty());
}

}  // namespace
}  // namespace dovetail::sim
