// A StepGraph grows and shrinks at its end, and says why its nodes started.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/graph.h"

#include <gtest/gtest.h>

#include <vector>

namespace dovetail::step {
namespace {

// Two ops and a transfer between them, on one lane.
StepGraph small_graph() {
  StepGraph graph;
  graph.slots = {{SlotKind::Compute, 0, StreamId{0}}, {SlotKind::Transfers, 0, StreamId{1}}};
  graph.lane_sets = {{0}};
  graph.begin_step();
  const NodeId backward = graph.append({.work = Work::fixed(40)}, {});
  const std::vector<Edge> event = {{backward, EdgeKind::Event}};
  const std::vector<Demand> wants = {{0, 1.0}};
  const NodeId transfer = graph.append({.kind = NodeKind::Transfer, .slot = 1},
                                       {.isolated = 30, .back_to_back = 25}, wants, event);
  const std::vector<Edge> both = {{backward, EdgeKind::Order}, {transfer, EdgeKind::Event, 2}};
  graph.append({.work = Work::fixed(5), .release = 60}, both);
  return graph;
}

TEST(StepGraphTest, TakesBackWhatWasAppended) {
  StepGraph graph = small_graph();
  const NodeId kept = graph.size();
  graph.begin_step();
  graph.append({.work = Work::fixed(7)}, std::vector<Edge>{{2, EdgeKind::Order}});
  graph.append({.kind = NodeKind::Transfer, .slot = 1}, {.previous = 1, .isolated = 9},
               std::vector<Demand>{{0, 0.5}, {1, 0.5}}, std::vector<Edge>{{3, EdgeKind::Event}});
  EXPECT_EQ(graph.steps(), 2);
  EXPECT_EQ(graph.demands.size(), 3u);
  graph.truncate(kept);
  const StepGraph fresh = small_graph();
  EXPECT_EQ(graph.work, fresh.work);
  EXPECT_EQ(graph.release, fresh.release);
  EXPECT_EQ(graph.predecessors, fresh.predecessors);
  EXPECT_EQ(graph.predecessor_begin, fresh.predecessor_begin);
  EXPECT_EQ(graph.lag, fresh.lag);
  EXPECT_EQ(graph.demands, fresh.demands);
  EXPECT_EQ(graph.transfers.size(), 1u);
  EXPECT_EQ(graph.step_begin, fresh.step_begin);
}

TEST(StepGraphTest, KeepsNoLagsAndNoReleasesWhereThereAreNone) {
  StepGraph graph;
  graph.slots = {{}};
  graph.append({.work = Work::fixed(3)}, {});
  graph.append({.work = Work::fixed(4)}, std::vector<Edge>{{0, EdgeKind::Order}});
  EXPECT_TRUE(graph.lag.empty());
  EXPECT_TRUE(graph.release.empty());
  // The first one that is not 0 fills up those before it.
  graph.append({.work = Work::fixed(4), .release = 9}, std::vector<Edge>{{1, EdgeKind::Order, -1}});
  EXPECT_EQ(graph.lag, (std::vector<std::int64_t>{0, -1}));
  EXPECT_EQ(graph.release, (std::vector<std::int64_t>{0, 0, 9}));
}

TEST(StepGraphTest, LinksEveryNodeToThoseThatWaitForIt) {
  StepGraph graph = small_graph();
  graph.link();
  EXPECT_EQ(graph.successor_begin, (std::vector<std::int32_t>{0, 2, 3, 3}));
  EXPECT_EQ(graph.successors, (std::vector<NodeId>{1, 2, 2}));
}

// Expectation: backward 0..40, transfer 40..70. What follows may start at 40 by order and at 72 by the event.
TEST(StepGraphTest, SaysWhichEdgeLetANodeStart) {
  const StepGraph graph = small_graph();
  const Timeline timeline = {.start = {0, 40, 72}, .end = {40, 70, 77}};
  EXPECT_EQ(started_by(graph, timeline, 2), (Edge{1, EdgeKind::Event, 2}));
  EXPECT_EQ(ready_at(graph, timeline, 2), 72);
  EXPECT_EQ(started_by(graph, timeline, 0), std::nullopt);  // it waits for nothing
}

// Expectation: the host lets it start at 60, when all else has been there since 52.
TEST(StepGraphTest, SaysThatTheReleaseLetANodeStart) {
  const StepGraph graph = small_graph();
  const Timeline timeline = {.start = {0, 40, 60}, .end = {40, 50, 65}};
  EXPECT_EQ(started_by(graph, timeline, 2), std::nullopt);
  EXPECT_EQ(ready_at(graph, timeline, 2), 52);
}

}  // namespace
}  // namespace dovetail::step
