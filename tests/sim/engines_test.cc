// Both ways of playing must agree with each other and with the slow reference simulator.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "schedule/lower/lower.h"
#include "schedule/verify/verify.h"
#include "sim/edits.h"
#include "sim/player.h"
#include "sim/simulate.h"
#include "tests/sim/agreement.h"
#include "tests/support/programs.h"

namespace dovetail::sim {
namespace {

using testing::random_chain;
using testing::random_machine;
using testing::random_schedule;

TEST(EnginesTest, AgreeOnAllGroupingsOfSmallPrograms) {
  Random random(1);
  std::size_t programs = 0;
  for (int i = 0; i < 40; ++i) {
    const schedule::Program program = random_chain(random, 7, 2);
    const models::Costs costs = testing::costs_of(random_machine(random), program);
    schedule::BucketPlacement placement;
    placement.mode = i % 2 == 0 ? schedule::BucketMode::View : schedule::BucketMode::Copy;
    placement.wait =
        i % 3 == 0 ? schedule::WaitPoint::EndOfBackward : schedule::WaitPoint::FirstUse;
    const schedule::Policy spec = schedule::placed(schedule::parse_policy("exact"), placement);
    for (const auto& ends : testing::all_groupings(program.reductions.size())) {
      const auto lowered = schedule::lower(program, schedule::partition(program, ends, spec));
      expect_reference(lowered.program, costs, 1);
      ++programs;
    }
  }
  EXPECT_GT(programs, 400u);
}

TEST(EnginesTest, AgreeOnRandomSchedulesOverSeveralSteps) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const schedule::Program program = random_chain(random, 12, random.between(1, 3));
    const models::Costs costs = testing::costs_of(random_machine(random), program);
    const auto lowered = schedule::lower(program, random_schedule(random, program));
    ASSERT_TRUE(schedule::verify(program, lowered.program).empty());
    expect_reference(lowered.program, costs, static_cast<std::int32_t>(random.between(1, 3)));
  }
}

TEST(EnginesTest, FoldingEqualRanksChangesNothing) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    schedule::Program program = random_chain(random, 12, 4);
    for (schedule::Op& op : program.ops) {  // all ranks alike
      auto& times = std::get<schedule::TimedWork>(op.work).by_rank;
      times.assign(1, times.front());
    }
    models::Costs costs = testing::costs_of(random_machine(random), program);
    const auto lowered = schedule::lower(program, random_schedule(random, program));
    Workspace workspace;
    const std::int64_t all = play_in_order(compile(lowered.program, costs, 2).graph, workspace);
    costs.distinct_ranks = 1;
    const StepGraph folded = compile(lowered.program, costs, 2).graph;
    EXPECT_EQ(folded.lanes, 1);
    EXPECT_EQ(play_in_order(folded, workspace), all);
  }
}

// A host that waits for the device. It calls from 0 to 10 us and launches a kernel of 50 us with 5 us of latency: 15..65.
// After a pause of 1 it waits: the call itself takes until 15, and it returns 2 after the kernel, at 67. After a pause
// of 3 it calls again, 70..72, and the next kernel starts 5 later, at 77; the stream would have let it start at 66.
TEST(EnginesTest, AHostThatWaitsForTheDeviceIsASlotOfItsOwn) {
  using step::Edge;
  using step::EdgeKind;
  using step::Work;
  StepGraph graph;
  graph.slots = {{step::SlotKind::Compute, 0, StreamId{0}}, {step::SlotKind::Host, 0, StreamId{0}}};
  const auto host = [&](std::int64_t ns, const std::vector<Edge>& edges) {
    return graph.append({.work = Work::fixed(ns), .kind = NodeKind::Call, .slot = 1}, edges);
  };
  const NodeId call = host(10, {});
  const NodeId kernel =
      graph.append({.work = Work::fixed(50)}, std::vector<Edge>{{call, EdgeKind::Launch, 5}});
  const NodeId blocking = host(4, {{call, EdgeKind::Order, 1}});
  const NodeId returns = host(0, {{blocking, EdgeKind::Order}, {kernel, EdgeKind::Synchronise, 2}});
  const NodeId next = host(2, {{returns, EdgeKind::Order, 3}});
  const NodeId second =
      graph.append({.work = Work::fixed(50)},
                   std::vector<Edge>{{next, EdgeKind::Launch, 5}, {kernel, EdgeKind::Order, 1}});
  graph.link();
  const Timeline timeline = play_both(graph);
  EXPECT_EQ(timeline.start, (std::vector<std::int64_t>{0, 15, 11, 67, 70, 77}));
  EXPECT_EQ(started_by(graph, timeline, returns)->kind, EdgeKind::Synchronise);
  EXPECT_EQ(started_by(graph, timeline, second)->kind, EdgeKind::Launch);
  EXPECT_EQ(started_by(graph, timeline, next)->from, returns);
}

// In order, nodes before the first changed one keep their times, and after undo all have theirs again.
TEST(EnginesTest, AChangedGraphIsPlayedFromItsFirstChangedNode) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const schedule::Program program = random_chain(random, 12, random.between(1, 3));
    const models::Costs costs = testing::costs_of(random_machine(random), program);
    const auto lowered = schedule::lower(program, random_schedule(random, program));
    StepGraph graph = compile(lowered.program, costs, 2).graph;
    Workspace changed;
    const std::int64_t end = play(graph, changed);
    const Timeline before = changed.timeline;
    step::Patch patch(graph);
    const auto last = static_cast<std::int64_t>(graph.size()) - 1;
    for (int i = 0; i < 3; ++i) {
      patch.scale(static_cast<NodeId>(random.between(last / 3, last)), 1.5);
    }
    patch.set_lag(graph.size() - 1, graph.edges_of(graph.size() - 1).begin, 7);
    play(graph, changed, patch.first_changed());
    EXPECT_EQ(changed.timeline.end, play_both(graph).end);
    patch.undo();
    Workspace whole;
    EXPECT_EQ(play(graph, whole), end);
    EXPECT_EQ(whole.timeline.end, before.end);
  }
}

TEST(EnginesTest, TheSameRunTwiceIsTheSameTrace) {
  Random random(5);
  const schedule::Program program = random_chain(random, 30, 3);
  testing::SimpleMachine machine = random_machine(random);
  machine.contention = {.compute_slowdown = 1.3, .collective_slowdown = 1.1};
  const models::Costs costs = testing::costs_of(machine, program);
  const auto lowered = schedule::lower(program, random_schedule(random, program));
  EXPECT_EQ(simulate(lowered.program, costs, {.steps = 3}),
            simulate(lowered.program, costs, {.steps = 3}));
}

}  // namespace
}  // namespace dovetail::sim
