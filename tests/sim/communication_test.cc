// What each kind of command costs: parts of buckets, slices, and communication of the Program.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "schedule/moved_bytes.h"
#include "sim/compile.h"
#include "sim/simulate.h"
#include "tests/sim/role_programs.h"
#include "tests/support/programs.h"
#include "traces/metrics.h"

namespace dovetail::sim {
namespace {

using schedule::Collective;
using schedule::Part;
using testing::RolePlan;
using testing::us;

// 1 us per byte, whatever is moved.
models::Costs by_byte(const schedule::ScheduledProgram& plan) {
  models::Costs costs = testing::role_costs(plan, testing::line(us(0), 1000));
  costs.copies = models::CopyModel{.fixed = {}, .ns_per_byte = 1000};
  return costs;
}

double step_us(const RolePlan& roles) {
  return to_us(traces::step_times(simulate(roles.plan(), by_byte(roles.plan()))).front());
}

// A bucket of 400 bytes in 4 shards: reduce-scatter 400, all-reduce of the shard 100, scale of the
// shard 100 and of all 400, all-gather 400.
TEST(CommunicationTest, A15AShardMovesItsPartOfTheBucket) {
  RolePlan roles(1, 4, {"compute"});
  const GroupId dp = roles.within_roles("dp");
  const BucketId bucket = roles.bucket(Bytes(400), 4);
  roles.collective(0, 0, {.bucket = bucket, .kind = Collective::ReduceScatter, .group = dp});
  EXPECT_EQ(step_us(roles), 400);
  roles.collective(
      0, 0, {.bucket = bucket, .kind = Collective::AllReduce, .group = dp, .part = Part::Shard});
  EXPECT_EQ(step_us(roles), 500);
  roles.add(0, 0, schedule::Scale{bucket, Rational(1, 2), Part::Shard});
  EXPECT_EQ(step_us(roles), 600);
  roles.add(0, 0, schedule::Scale{bucket, Rational(1, 2), Part::Whole});
  EXPECT_EQ(step_us(roles), 1000);
  roles.collective(
      0, 0, {.bucket = bucket, .kind = Collective::AllGather, .group = dp, .part = Part::Shard});
  EXPECT_EQ(step_us(roles), 1400);
}

// A tensor of 100 elements: 30 of them lie in bucket 0, 70 in bucket 1. Packing them costs 120 and
// 280 bytes, not 400 each.
TEST(CommunicationTest, A4CopyingASliceMovesTheSlice) {
  schedule::ScheduledProgram plan;
  plan.program.world_size = 2;
  plan.program.tensors = {
      {TensorId{0}, "g", schedule::TensorKind::Gradient, schedule::DType::F32, {100}}};
  plan.streams = {{StreamId{0}, "compute"}};
  plan.roles = {{{Rank{0}, Rank{1}}, {}}};
  for (const std::int32_t b : {0, 1}) {
    schedule::BucketLayout layout;
    layout.bucket = BucketId{b};
    layout.mode = schedule::BucketMode::Copy;
    layout.members = {{TensorId{0}, Bytes(0), b == 0 ? 0 : 30, b == 0 ? 30 : 70}};
    layout.payload = layout.size = Bytes(b == 0 ? 120 : 280);
    plan.buckets.push_back(layout);
  }
  const auto pack = [&](std::int32_t b) {
    plan.roles[0].commands = {
        {CommandId{0}, StreamId{0},
         schedule::Copy{BucketId{b}, schedule::CopyDirection::Pack, {TensorId{0}}}}};
    return to_us(traces::step_times(simulate(plan, by_byte(plan))).front());
  };
  EXPECT_EQ(pack(0), 120);
  EXPECT_EQ(pack(1), 280);
}

// Both ranges of a tensor lie in one bucket: 1 and 99 of 100 elements, 400 bytes, whether a copy
// names it once or for each range; another tensor that lies elsewhere counts as a whole.
TEST(CommunicationTest, A4CopyingTwoRangesOfATensorMovesEachOnce) {
  schedule::Program program;
  for (const std::int32_t id : {0, 1}) {
    program.tensors.push_back({.id = TensorId{id},
                               .name = "g" + std::to_string(id),
                               .kind = schedule::TensorKind::Gradient,
                               .shape = {100}});
  }
  schedule::BucketLayout layout;
  layout.members = {{TensorId{0}, Bytes(0), 0, 1}, {TensorId{0}, Bytes(4), 1, 99}};
  schedule::Copy copy;
  copy.gradients = {TensorId{0}};
  EXPECT_EQ(schedule::moved_bytes(program, layout, copy), Bytes(400));
  copy.gradients.push_back(TensorId{0});
  EXPECT_EQ(schedule::moved_bytes(program, layout, copy), Bytes(400));
  copy.gradients.push_back(TensorId{1});
  EXPECT_EQ(schedule::moved_bytes(program, layout, copy), Bytes(800));
}

// Tensor-parallel sums stand on the compute stream: 10 + 15 + 10. Their spans are collectives.
TEST(CommunicationTest, PI8AnOpThatCommunicatesRunsWhereItStands) {
  RolePlan roles(1, 2, {"compute"});
  const GroupId tp = roles.within_roles("tp");
  roles.run(0, 0, "first", {us(10)});
  roles.communicate(0, 0, "sum", {.kind = Collective::AllReduce, .group = tp, .bytes = Bytes(15)});
  roles.run(0, 0, "second", {us(10)});
  const traces::Trace trace = simulate(roles.plan(), by_byte(roles.plan()));
  EXPECT_EQ(to_us(traces::step_times(trace).front()), 35);
  const traces::StepReport report = traces::step_report(trace, 0);
  EXPECT_EQ(to_us(report.communication), 15);
  EXPECT_EQ(to_us(report.exposed), 15);
  ASSERT_EQ(report.buckets.size(), 1u);
  EXPECT_EQ(report.buckets[0].name, "sum");
  EXPECT_EQ(report.buckets[0].bytes, Bytes(15));
}

// On another stream an inline host pays for the enqueue, as for a bucket's collective: op 10,
// enqueue 3, op 10 beside the sum (13..28).
TEST(CommunicationTest, AnOpThatCommunicatesIsEnqueuedLikeACollective) {
  RolePlan roles(1, 2, {"compute", "comm0"});
  const GroupId tp = roles.within_roles("tp");
  roles.run(0, 0, "first", {us(10)});
  roles.chain(0, 0, 1);
  roles.communicate(0, 1, "sum", {.kind = Collective::AllReduce, .group = tp, .bytes = Bytes(15)});
  roles.run(0, 0, "second", {us(10)});
  models::Costs costs = by_byte(roles.plan());
  costs.host.collective = us(3);
  const traces::Trace trace = simulate(roles.plan(), costs);
  std::map<std::string, double> ends;
  for (const traces::Span& span : trace.spans) {
    if (span.rank == Rank{0}) ends[trace.command(span.command).name] = to_us(span.end);
  }
  EXPECT_EQ(ends.at("enqueue sum"), 13);
  EXPECT_EQ(ends.at("second"), 23);
  EXPECT_EQ(ends.at("sum"), 28);
}

// A scale behind a collective on its stream takes the stream's time, not the compute stream's, and
// slows nothing: compute 0..40 beside all-reduce 0..20 and scale 20..40.
TEST(CommunicationTest, AScaleOnACommunicationStreamRunsBesideCompute) {
  RolePlan roles(1, 2, {"compute", "comm0"});
  const GroupId dp = roles.within_roles("dp");
  const BucketId bucket = roles.bucket(Bytes(20));
  roles.collective(0, 1, {.bucket = bucket, .group = dp});
  roles.add(0, 1, schedule::Scale{bucket, Rational(1, 2), Part::Whole});
  roles.run(0, 0, "op", {us(30)});
  models::Costs costs = by_byte(roles.plan());
  costs.contention_by_class = {{.compute_slowdown = 2}};
  // The op does 10 of its 30 beside the all-reduce (0..20), the other 20 beside the scale: 40.
  const StepGraph graph = compile(roles.plan(), costs, 1).graph;
  Workspace workspace;
  EXPECT_EQ(play(graph, workspace), 40'000);
  const StepSummary summary = summarize(graph, workspace.timeline);
  EXPECT_EQ(summary.compute_ns, 40'000);
  EXPECT_EQ(summary.communication_ns, 20'000);
  EXPECT_EQ(summary.exposed_ns, 0);
}

// What is ready at 100, behind a collective that ends at e <= 100, ends at 100 + T(100 - e). With a cold
// start that costs more than a queued one (isolated 30, back to back 10) any rule that keeps both ends
// later for an early e than for e = 100: at 130 against 110. It is at most that. The other way round
// (isolated 10, back to back 30) an earlier end never delays.
TEST(CommunicationTest, AnEarlierEndDelaysTheNextCollectiveByAtMostWhatAColdStartCosts) {
  const step::Transfer cold{.isolated = 30, .back_to_back = 10};
  const step::Transfer queued{.isolated = 10, .back_to_back = 30};
  const auto end = [](const step::Transfer& node, std::int64_t previous) {
    return 100 + node.duration(100 - previous);
  };
  EXPECT_EQ(end(cold, 100), 110);
  EXPECT_EQ(end(cold, 95), 115);
  EXPECT_EQ(end(cold, 0), 130);
  for (std::int64_t previous = 1; previous <= 100; ++previous) {
    EXPECT_LE(end(cold, previous - 1) - end(cold, 100), 30 - 10);
    EXPECT_LE(end(queued, previous - 1), end(queued, previous));
  }
}

}  // namespace
}  // namespace dovetail::sim
