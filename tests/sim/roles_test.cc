// Several roles, several instances of a process group: who meets whom, and when.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "sim/player.h"
#include "sim/simulate.h"
#include "tests/sim/agreement.h"
#include "tests/sim/role_programs.h"
#include "tests/support/programs.h"
#include "traces/metrics.h"

namespace dovetail::sim {
namespace {

using schedule::Collective;
using schedule::Phase;
using testing::PipelinePlan;
using testing::role_costs;
using testing::RolePlan;
using testing::us;

constexpr std::int32_t kCompute = 0;

models::CollectiveTable always(Duration time) { return testing::line(time, 0); }

// The span of a command by its name on one rank.
traces::Span span_of(const traces::Trace& trace, const std::string& name, std::int32_t rank) {
  const auto found = std::ranges::find_if(trace.spans, [&](const traces::Span& span) {
    return span.rank == Rank{rank} && trace.command(span.command).name == name;
  });
  EXPECT_NE(found, trace.spans.end()) << name << " on rank " << rank;
  return found == trace.spans.end() ? traces::Span{} : *found;
}

// Two stages, one micro-batch, sends of 5: F0 0..10, send 10..15, F1 15..25, B1 25..45, send 45..50,
// B0 50..70.
TEST(RolesTest, TwoRolesExchangeActivationsAndGradients) {
  const auto plan = testing::pipeline_plan(
      {.shape = {.stages = 2}, .time = [](Phase phase, std::int32_t, std::int32_t) {
         return phase == Phase::Forward ? us(10) : us(20);
       }});
  const traces::Trace trace = simulate(plan, role_costs(plan, always(us(5))));
  EXPECT_EQ(trace.ranks, (std::vector<Rank>{Rank{0}, Rank{1}}));
  EXPECT_EQ(to_us(span_of(trace, "F0@1", 1).start), 15);
  EXPECT_EQ(to_us(span_of(trace, "B0@1", 1).end), 45);
  EXPECT_EQ(to_us(span_of(trace, "B0@0", 0).start), 50);
  EXPECT_EQ(to_us(traces::step_times(trace).front()), 70);
}

// The sender is there at 10, but the receiver's stream waits for an op that ends at 30: the data
// moves from 30 to 35 on both sides.
TEST(RolesTest, ASendMovesDataOnceItsReceiverIsThere) {
  RolePlan roles(2, 1, {"compute", "p2p"});
  const GroupId pair = roles.pairs(0, 1);
  roles.run(0, kCompute, "early", {us(10)});
  roles.chain(0, kCompute, 1);
  roles.communicate(0, 1, "send", {.kind = Collective::SendRecv, .group = pair, .bytes = Bytes(4)});
  roles.run(1, kCompute, "late", {us(30)});
  roles.chain(1, kCompute, 1);
  roles.communicate(1, 1, "receive",
                    {.kind = Collective::SendRecv, .group = pair, .bytes = Bytes(4)});
  const traces::Trace trace = simulate(roles.plan(), role_costs(roles.plan(), always(us(5))));
  const traces::Span send = span_of(trace, "send", 0);
  EXPECT_EQ(to_us(send.start), 10);
  ASSERT_TRUE(send.transfer_start.has_value());
  EXPECT_EQ(to_us(*send.transfer_start), 30);
  EXPECT_EQ(to_us(send.end), 35);
  const traces::Span receive = span_of(trace, "receive", 1);
  EXPECT_EQ(to_us(receive.start), 30);
  EXPECT_EQ(to_us(receive.end), 35);
}

// Each role's host sends before it receives, on a stream per direction: no interleaving of the two
// host orders works, but the streams run. Both ops end at 10, both transfers at 15.
TEST(RolesTest, BothRolesMaySendBeforeTheyReceive) {
  RolePlan roles(2, 1, {"compute", "p2p-0-1", "p2p-1-0"});
  const GroupId pair = roles.pairs(0, 1);
  for (const std::int32_t role : {0, 1}) {
    roles.run(role, kCompute, "op", {us(10)});
    for (const std::int32_t from : {role, 1 - role}) {
      roles.chain(role, kCompute, 1 + from);
      roles.communicate(
          role, 1 + from, "transfer from " + std::to_string(from),
          {.kind = Collective::SendRecv, .group = pair, .bytes = Bytes(4), .root = from});
    }
  }
  const traces::Trace trace = simulate(roles.plan(), role_costs(roles.plan(), always(us(5))));
  EXPECT_EQ(to_us(traces::step_times(trace).front()), 15);
  expect_reference(roles.plan(), role_costs(roles.plan(), always(us(5))), 2);
}

// The second send of role 0 meets the second receive of role 1, although other ops lie between.
TEST(RolesTest, SendsAndReceivesPairUpInOrder) {
  RolePlan roles(2, 1, {"compute", "p2p"});
  const GroupId pair = roles.pairs(0, 1);
  const auto transfer = [&](std::int32_t role, const std::string& name, std::int64_t bytes) {
    roles.communicate(role, 1, name,
                      {.kind = Collective::SendRecv, .group = pair, .bytes = Bytes(bytes)});
  };
  transfer(0, "send a", 7);
  transfer(0, "send b", 3);
  transfer(1, "receive a", 7);
  roles.run(1, kCompute, "between", {us(20)});
  roles.chain(1, kCompute, 1);
  transfer(1, "receive b", 3);
  const auto costs = role_costs(roles.plan(), testing::line(us(0), 1000));
  // a: 0..7. b waits for the op that ends at 20: 20..23.
  const traces::Trace trace = simulate(roles.plan(), costs);
  EXPECT_EQ(to_us(span_of(trace, "send a", 0).end), 7);
  EXPECT_EQ(to_us(*span_of(trace, "send b", 0).transfer_start), 20);
  EXPECT_EQ(to_us(span_of(trace, "receive b", 1).end), 23);
}

// Four ranks of one role in tensor-parallel pairs {0, 1} and {2, 3}. Rank 3 is late: its pair meets
// at 30, the other one at 10.
TEST(RolesTest, InstancesOfAGroupMeetIndependently) {
  RolePlan roles(1, 4, {"compute"});
  const GroupId pairs = roles.group("tp", {Rank{0}, Rank{1}, Rank{2}, Rank{3}}, 2);
  roles.run(0, kCompute, "op", {us(10), us(10), us(10), us(30)});
  roles.communicate(0, kCompute, "sum",
                    {.kind = Collective::AllReduce, .group = pairs, .bytes = Bytes(4)});
  const auto costs = role_costs(roles.plan(), always(us(5)));
  const traces::Trace trace = simulate(roles.plan(), costs);
  EXPECT_EQ(to_us(span_of(trace, "sum", 0).end), 15);
  EXPECT_EQ(to_us(span_of(trace, "sum", 1).end), 15);
  EXPECT_EQ(to_us(*span_of(trace, "sum", 2).transfer_start), 30);
  EXPECT_EQ(to_us(span_of(trace, "sum", 3).end), 35);
  expect_reference(roles.plan(), costs, 3);
}

// Each host has its own clock: role 1 issues 3 ops of 20 us each, so its receive is issued at 80;
// role 0 issues only the send.
TEST(RolesTest, EachRoleHasAHostOfItsOwn) {
  RolePlan roles(2, 1, {"compute", "p2p"});
  const GroupId pair = roles.pairs(0, 1);
  roles.communicate(0, 1, "send", {.kind = Collective::SendRecv, .group = pair, .bytes = Bytes(4)});
  for (int i = 0; i < 3; ++i) roles.run(1, kCompute, "op" + std::to_string(i), {us(1)});
  roles.communicate(1, 1, "receive",
                    {.kind = Collective::SendRecv, .group = pair, .bytes = Bytes(4)});
  models::Costs costs = role_costs(roles.plan(), always(us(5)));
  costs.host = {.kind = models::HostModel::Kind::Async, .run_op = us(20), .collective = us(20)};
  const traces::Trace trace = simulate(roles.plan(), costs);
  EXPECT_EQ(to_us(span_of(trace, "send", 0).start), 20);
  EXPECT_EQ(to_us(*span_of(trace, "send", 0).transfer_start), 80);
  EXPECT_EQ(to_us(span_of(trace, "receive", 1).start), 80);
  expect_reference(roles.plan(), costs, 2);
}

// Role 0 reduces from 10 to 30 while both roles compute from 10 to 30 (20 us of work each). Compute
// beside it runs at half rate on role 0 only: 10 of its 20 done at 30, end at 40. Role 1 ends at 30.
TEST(RolesTest, ATransferSlowsOnlyTheRolesThatTakePart) {
  RolePlan roles(2, 2, {"compute", "comm0"});
  const GroupId dp = roles.within_roles("dp");
  for (const std::int32_t role : {0, 1}) {
    roles.run(role, kCompute, "first", {us(10)});
    if (role == 0) {
      roles.chain(0, kCompute, 1);
      roles.collective(0, 1, {.bucket = roles.bucket(Bytes(400)), .group = dp});
    }
    roles.run(role, kCompute, "second", {us(20)});
  }
  models::Costs costs = role_costs(roles.plan(), always(us(20)));
  costs.contention_by_class = {{.compute_slowdown = 2}};
  const traces::Trace trace = simulate(roles.plan(), costs);
  EXPECT_EQ(to_us(span_of(trace, "second", 1).end), 40);
  EXPECT_EQ(to_us(span_of(trace, "second", 2).end), 30);
}

// The other way round: the transfer of role 0 (20 us) runs at half rate while its own ranks compute
// (10..20: 5 done), then alone: 20 + 15 = 35. What role 1 computes until 60 does not matter.
TEST(RolesTest, OnlyTheRolesThatTakePartSlowATransfer) {
  RolePlan roles(2, 2, {"compute", "comm0"});
  const GroupId dp = roles.within_roles("dp");
  roles.run(0, kCompute, "first", {us(10)});
  roles.chain(0, kCompute, 1);
  roles.collective(0, 1, {.bucket = roles.bucket(Bytes(400)), .group = dp});
  roles.run(0, kCompute, "second", {us(10)});
  roles.run(1, kCompute, "long", {us(60)});
  models::Costs costs = role_costs(roles.plan(), always(us(20)));
  costs.contention_by_class = {{.collective_slowdown = 2}};
  const traces::Trace trace = simulate(roles.plan(), costs);
  EXPECT_EQ(to_us(span_of(trace, "all-reduce bucket 0", 0).end), 35);
}

models::Costs random_costs(Random& random, const schedule::ScheduledProgram& plan) {
  return testing::costs_of(testing::random_machine(random), plan.program);
}

TEST(RolesTest, AllEnginesAgreeWithTheReferenceOnRandomPipelines) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto plan = testing::pipeline_plan(testing::random_pipeline(random));
    expect_reference(plan, random_costs(random, plan),
                     static_cast<std::int32_t>(random.between(1, 3)));
  }
}

TEST(RolesTest, AllEnginesAgreeWithTheReferenceOnRandomGrids) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto plan = testing::random_grid(random, 2);
    expect_reference(plan, random_costs(random, plan),
                     static_cast<std::int32_t>(random.between(1, 2)));
  }
}

// Where the ranks of a role are alike, one lane per role gives what all of them give.
TEST(RolesTest, FoldingEqualRanksOfEveryRoleChangesNothing) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    PipelinePlan pipeline = testing::random_pipeline(random);
    pipeline.time = [time = pipeline.time](Phase phase, std::int32_t role, std::int32_t) {
      return time(phase, role, 0);
    };
    const auto plan = testing::pipeline_plan(pipeline);
    models::Costs costs = random_costs(random, plan);
    Workspace workspace;
    const StepGraph whole = compile(plan, costs, 2).graph;
    EXPECT_EQ(whole.lanes, plan.program.world_size);
    const std::int64_t end = play_in_order(whole, workspace);
    costs.distinct_ranks = 1;
    const StepGraph folded = compile(plan, costs, 2).graph;
    EXPECT_EQ(folded.lanes, pipeline.shape.stages);
    EXPECT_EQ(play_in_order(folded, workspace), end);
  }
}

// Of twelve ranks rank 1 is faster; all others are like rank 0, which is what distinct_ranks = 2 says.
// Two lanes per role play what all ranks play.
TEST(RolesTest, FoldsEachRoleToAsManyLanesAsRanksDiffer) {
  PipelinePlan pipeline;
  pipeline.shape = {.stages = 3, .micro_steps = 4};
  pipeline.width = 4;
  pipeline.gradients = Bytes(400);
  pipeline.time = [](Phase phase, std::int32_t, std::int32_t rank) {
    return us((phase == Phase::Forward ? 10 : 20) + (rank == 1 ? 0 : 3));
  };
  const auto plan = testing::pipeline_plan(pipeline);
  models::Costs costs = role_costs(plan, always(us(2)));
  Workspace workspace;
  const std::int64_t end = play_in_order(compile(plan, costs, 2).graph, workspace);
  costs.distinct_ranks = 2;
  const StepGraph folded = compile(plan, costs, 2).graph;
  EXPECT_EQ(folded.lanes, 6);
  EXPECT_EQ(play_in_order(folded, workspace), end);
}

TEST(RolesTest, AFoldedTraceNamesTheFirstRankOfEachRole) {
  const auto plan = testing::pipeline_plan(
      {.shape = {.stages = 3}, .width = 4, .time = [](Phase, std::int32_t, std::int32_t) {
         return us(1);
       }});
  models::Costs costs = role_costs(plan, always(us(1)));
  costs.distinct_ranks = 1;
  const traces::Trace trace = simulate(plan, costs);
  EXPECT_EQ(trace.ranks, (std::vector<Rank>{Rank{0}, Rank{4}, Rank{8}}));
  EXPECT_EQ(trace.world_size, 12);
}

// Tensor-parallel pairs cut through the role; ranks 0 and 1 are alike, and so are 2 and 3, but not
// as distinct_ranks = 2 means it. All four have to be followed.
TEST(RolesTest, RanksAreNotFoldedWhereAGroupCutsThroughTheirRole) {
  RolePlan roles(1, 4, {"compute"});
  const GroupId pairs = roles.group("tp", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2);
  roles.run(0, kCompute, "op", {us(10), us(30), us(10), us(10)});
  roles.communicate(0, kCompute, "sum",
                    {.kind = Collective::AllReduce, .group = pairs, .bytes = Bytes(4)});
  models::Costs costs = role_costs(roles.plan(), always(us(5)));
  costs.distinct_ranks = 2;
  EXPECT_EQ(compile(roles.plan(), costs, 1).graph.lanes, 4);
}

// The step lasts until the slowest rank of any role ends, and the summary says the same as the
// report of the Trace.
TEST(RolesTest, TheSummaryOfSeveralRolesAgreesWithTheReportOfTheTrace) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto plan = testing::pipeline_plan(testing::random_pipeline(random));
    testing::SimpleMachine machine = testing::random_machine(random);
    if (random.between(0, 1) == 0) machine.contention.compute_slowdown = 1.25;
    if (random.between(0, 1) == 0) machine.contention.collective_slowdown = 1.5;
    const models::Costs costs = testing::costs_of(machine, plan.program);
    const StepGraph graph = compile(plan, costs, 1).graph;
    Workspace workspace;
    play(graph, workspace);
    const StepSummary summary = summarize(graph, workspace.timeline);
    const traces::StepReport report = traces::step_report(simulate(plan, costs), 0);
    const Instant end = report.start + report.step_time;
    EXPECT_EQ(summary.step_ns, end.time_since_epoch().count());
    EXPECT_EQ(summary.compute_ns, report.compute_busy.count());
    if (report.transfer) {
      EXPECT_EQ(summary.communication_ns, report.transfer->count());
      EXPECT_EQ(summary.exposed_ns, report.exposed_transfer->count());
    }
  }
}

}  // namespace
}  // namespace dovetail::sim
