// What wait points, launch points, gradient merge and sharding cost: the oracles of the source
// systems, and their order on random programs.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "schedule/lower/lower.h"
#include "schedule/verify/verify.h"
#include "sim/simulate.h"
#include "tests/sim/agreement.h"
#include "tests/support/oracle.h"
#include "tests/support/program_builder.h"
#include "tests/support/programs.h"
#include "traces/metrics.h"

namespace dovetail::sim {
namespace {

using schedule::Bucket;
using schedule::Collective;
using schedule::Program;
using schedule::Schedule;
using schedule::SyncPoint;
using schedule::WaitPoint;
using schedule::WaitScope;
using testing::us;

// One bucket per gradient, in gradient-ready order, on one stream.
Schedule per_gradient(const Program& program) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i <= program.reductions.size(); ++i) ends.push_back(i);
  return schedule::partition(program, ends, schedule::parse_policy("exact"));
}

struct Played {
  traces::Trace trace;
  double step_us = 0;
  double exposed_us = 0;
  std::int64_t bytes = 0;  // that rank 0 communicates
  std::int64_t collectives = 0;
  std::map<std::string, double> ends;  // of each command on rank 0, its last run
};

Played played_under(const Program& program, const Schedule& schedule, const models::Costs& costs) {
  const auto plan = schedule::lower(program, schedule).program;
  for (const schedule::Problem& problem : schedule::verify(program, plan, schedule.merge)) {
    ADD_FAILURE() << problem.message;
  }
  expect_reference(plan, costs, 2);
  Played played;
  played.trace = simulate(plan, costs);
  const traces::StepReport report = traces::step_report(played.trace, 0);
  played.step_us = to_us(report.step_time);
  played.exposed_us = to_us(report.exposed);
  for (const traces::Span& span : played.trace.spans) {
    if (span.rank != Rank{0}) continue;
    const traces::CommandInfo& command = played.trace.command(span.command);
    if (command.kind == traces::SpanKind::Wait) continue;
    double& end = played.ends[command.name];
    end = std::max(end, to_us(span.end));
    if (command.kind != traces::SpanKind::Collective) continue;
    played.bytes += command.bytes.count();
    ++played.collectives;
  }
  return played;
}

// 5 buckets, compute 10 each, no optimizer time. The first gradient that is ready is the largest.
Program five_layers() {
  std::vector<testing::Layer> layers(5, {us(0), us(10), Bytes(400), us(0)});
  layers.back().bytes = Bytes(4000);
  return testing::chain(layers);
}

// Collectives of 50, 2, 2, 2, 2; or 8 each.
double o5_us(std::int32_t batch, std::int64_t large, std::int64_t small) {
  const Program program = five_layers();
  const testing::SimpleMachine machine{
      .collective = testing::table_at({{Bytes(400), us(small)}, {Bytes(4000), us(large)}})};
  Schedule schedule = per_gradient(program);
  for (std::size_t i = 0; batch > 0 && i < schedule.buckets.size(); ++i) {
    const auto number = static_cast<std::int32_t>(i) / batch;
    schedule.buckets[i].launch = schedule::LaunchInBatch{number};
    schedule.buckets[i].wait = WaitPoint::BeforeNextBatch;
  }
  return played_under(program, schedule, testing::costs_of(machine, program)).step_us;
}

// Ready at 10, 20, ...: 10..60, then 2 each: 68. Compute ends at 50 and waits for nothing.
TEST(WaitPolicyTest, O5AL3EventsAloneEndAt68) {
  testing::expect_oracle("O5 step with events alone, us", o5_us(0, 50, 2), 68);
}

// A13, p = 1: bucket 1 is ready at 20, but its launch waits for bucket 0: 60..62. Then each bucket
// has gone before the next one is ready: 70..72, 80..82, 90..92.
TEST(WaitPolicyTest, O5A13WaitingForEachBucketAtTheNextLaunchEndsAt92) {
  testing::expect_oracle("O5 step in batches of 1, us", o5_us(1, 50, 2), 92);
}

// p = 2: {0, 1} go at 20: 70, 72. {2, 3} are ready at 40 and wait: 74, 76. {4}: ready at 82, 84.
TEST(WaitPolicyTest, O5A13BatchesOfTwoEndAt84) {
  testing::expect_oracle("O5 step in batches of 2, us", o5_us(2, 50, 2), 84);
}

// p = 3: {0, 1, 2} go at 30: 80, 82, 84. {3, 4} are ready at 50 and wait until 84: 86, 88.
TEST(WaitPolicyTest, O5A13BatchesOfThreeEndAt88) {
  testing::expect_oracle("O5 step in batches of 3, us", o5_us(3, 50, 2), 88);
}

// Collectives of 8 fit between gradients: p = 1 ends 8 after the last one is ready. p = 2: {4} is
// ready at 50, behind {2, 3} (40..48..56): 56..64. p = 3: {3, 4} go at 54 (30 + 3 * 8): 62, 70.
TEST(WaitPolicyTest, O5A13WithEqualCollectivesEndsAt58And64And70) {
  const std::vector<double> steps{o5_us(1, 8, 8), o5_us(2, 8, 8), o5_us(3, 8, 8)};
  testing::expect_oracle("O5 step with collectives of 8 each, batches of 1, 2, 3, us", steps,
                         std::vector<double>{58, 64, 70});
}

// Section 6: with updates in launch order and one stream, waiting for one bucket is never slower than
// for the whole stream, and that never slower than for everything at the end; no wait makes a
// collective end earlier.
TEST(WaitPolicyTest, PL1PerEventIsNeverSlowerThanWholeStreamNorThatThanAllAtEnd) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Program program = testing::random_chain(random, 12, random.between(1, 3));
    const std::int64_t alpha = random.between(0, 4000);
    const std::int64_t rate = random.between(0, 3);
    const auto costs =
        testing::costs_of({.collective = testing::line(Duration(alpha), rate)}, program);
    std::vector<std::size_t> ends;
    for (std::size_t i = 1; i < program.reductions.size(); ++i) {
      if (random.between(0, 1) == 0) ends.push_back(i);
    }
    ends.push_back(program.reductions.size());
    Schedule schedule = schedule::partition(program, ends, schedule::parse_policy("exact"));
    const auto with = [&](WaitPoint wait, WaitScope scope) {
      for (Bucket& bucket : schedule.buckets) {
        bucket.wait = wait;
        bucket.scope = scope;
      }
      return played_under(program, schedule, costs);
    };
    const Played per_event = with(WaitPoint::FirstUse, WaitScope::Event);
    const Played whole_stream = with(WaitPoint::FirstUse, WaitScope::WholeStream);
    const Played all_at_end = with(WaitPoint::EndOfBackward, WaitScope::WholeStream);
    for (std::size_t i = 0; i < schedule.buckets.size(); ++i) {
      schedule.buckets[i].launch = schedule::LaunchInBatch{static_cast<std::int32_t>(i)};
    }
    const Played at_launch = with(WaitPoint::BeforeNextBatch, WaitScope::Event);
    EXPECT_LE(per_event.step_us, whole_stream.step_us);
    EXPECT_LE(whole_stream.step_us, all_at_end.step_us);
    for (const auto& [name, end] : per_event.ends) {
      if (!name.starts_with("all-reduce")) continue;
      EXPECT_LE(end, whole_stream.ends.at(name)) << name;
      EXPECT_LE(end, all_at_end.ends.at(name)) << name;
      EXPECT_LE(end, at_launch.ends.at(name)) << name;
    }
  }
}

// Where there is one bucket, every overlapping wait policy waits for the same thing at the same
// place. Backward ends at 30, the collective runs 30..45, the updates take 3 x 5: 60.
TEST(WaitPolicyTest, WithOneBucketAllOverlappingPoliciesCoincide) {
  const Program program =
      testing::chain(std::vector<testing::Layer>(3, {us(0), us(10), Bytes(400), us(5)}));
  const auto costs = testing::costs_of({.collective = testing::line(us(15), 0)}, program);
  for (const std::string options :
       {"", ":scope=whole-stream", ":wait=end-of-backward", ":batch=1,wait=before-next-batch"}) {
    const Schedule schedule =
        schedule::make_schedule(program, schedule::parse_policy("one-bucket" + options));
    EXPECT_EQ(played_under(program, schedule, costs).step_us, 60) << options;
  }
}

// ------------------------------------------------------------------------------- gradient merge

// Two layers, backward 10 each, 400 bytes each, collectives of 12; two micro-steps; accumulation is
// free.
Played merged(SyncPoint sync) {
  const Program program =
      testing::chain(std::vector<testing::Layer>(2, {us(0), us(10), Bytes(400), us(0)}));
  Schedule schedule = per_gradient(program);
  schedule.merge = {.micro_steps = 2, .op = schedule::ReduceOp::Average, .sync = sync};
  return played_under(program, schedule,
                      testing::costs_of({.collective = testing::line(us(12), 0)}, program));
}

// GM14: the accumulations wait for their reductions in every micro-step: backward 20, collectives
// 10..22 and 22..34; so 2 x 34 = 68, of which 2 x (34 - 20) exposed. GM13: k V = 1600 bytes in k N = 4
// collectives.
TEST(GradientMergeTest, GM13GM14SynchronisingEveryMicroStepWaitsInEachOfThem) {
  const Played played = merged(SyncPoint::EveryMicroStep);
  EXPECT_EQ(played.step_us, 68);
  EXPECT_EQ(played.exposed_us, 28);
  EXPECT_EQ(played.bytes, 1600);
  EXPECT_EQ(played.collectives, 4);
}

// GM14: backward ends at 40, then 12 and 12: 64. GM13: V = 800 bytes in N = 2 collectives.
TEST(GradientMergeTest, GM13GM14SynchronisingAfterTheLastMicroStepIsABurst) {
  const Played played = merged(SyncPoint::AfterLastMicroStep);
  EXPECT_EQ(played.step_us, 64);
  EXPECT_EQ(played.exposed_us, 24);
  EXPECT_EQ(played.bytes, 800);
  EXPECT_EQ(played.collectives, 2);
}

// The third policy: in the last micro-step the first sum is there at 30 and travels beside backward:
// 30..42; the second follows: 42..54. As few bytes, 14 us exposed.
TEST(GradientMergeTest, GM13GML2TheLastMicroStepOverlapsAsAnUnmergedStepDoes) {
  const Played played = merged(SyncPoint::LastMicroStep);
  EXPECT_EQ(played.step_us, 54);
  EXPECT_EQ(played.exposed_us, 14);
  EXPECT_EQ(played.bytes, 800);
  EXPECT_EQ(played.collectives, 2);
}

// O3: k = 4, 4 gradients, 2 ranks, 8 micro-steps, which are two steps: 32 reductions if every
// micro-step reduces, else 8; two updates of each parameter.
TEST(GradientMergeTest, O3EightMicroStepsReduce32TimesOr8TimesForTwoUpdates) {
  const Program program =
      testing::chain(std::vector<testing::Layer>(4, {us(1), us(1), Bytes(400), us(1)}));
  const auto costs = testing::costs_of({.collective = testing::line(us(1), 0)}, program);
  for (const auto& [sync, known] :
       std::map<SyncPoint, std::int64_t>{{SyncPoint::EveryMicroStep, 32},
                                         {SyncPoint::AfterLastMicroStep, 8},
                                         {SyncPoint::LastMicroStep, 8}}) {
    Schedule schedule = per_gradient(program);
    schedule.merge = {.micro_steps = 4, .op = schedule::ReduceOp::Average, .sync = sync};
    const auto plan = schedule::lower(program, schedule).program;
    const traces::Trace trace = simulate(plan, costs, {.steps = 2});
    std::int64_t reductions = 0;
    std::map<std::string, int> updates;
    for (const traces::Span& span : trace.spans) {
      const traces::CommandInfo& command = trace.command(span.command);
      if (span.rank != Rank{0}) continue;
      if (command.kind == traces::SpanKind::Collective) ++reductions;
      if (command.name.ends_with(".update")) ++updates[command.name];
    }
    testing::expect_oracle(
        "O3 reductions in 8 micro-steps, sync=" + std::string(schedule::to_string(sync)),
        reductions, known);
    EXPECT_EQ(updates,
              (std::map<std::string, int>{
                  {"l0.update", 2}, {"l1.update", 2}, {"l2.update", 2}, {"l3.update", 2}}));
  }
}

// -------------------------------------------------------------------------------- sharded updates

models::Costs scatter_6_gather_7(const Program& program) {
  models::Costs costs = testing::costs_of({.collective = testing::line(us(7), 0)}, program);
  for (models::CollectiveCost& cost : costs.collectives) {
    if (cost.key.collective == Collective::ReduceScatter) cost.time = testing::line(us(6), 0);
  }
  return costs;
}

// One layer on 2 ranks: backward 0..10, reduce-scatter (6) 10..16, this rank's half of the update of
// 8 16..20, all-gather (7) 20..27.
TEST(ShardedTest, A14A24ReduceScatterUpdateAndAllGatherFollowEachOther) {
  const Program program = testing::chain({{us(0), us(10), Bytes(400), us(8)}});
  Schedule schedule = per_gradient(program);
  schedule.buckets[0].collective = Collective::ReduceScatter;
  const models::Costs costs = scatter_6_gather_7(program);
  const Played played = played_under(program, schedule, costs);
  EXPECT_EQ(played.step_us, 27);
  EXPECT_EQ(played.ends.at("reduce-scatter bucket 0"), 16);
  EXPECT_EQ(played.ends.at("all-gather bucket 1"), 27);
  EXPECT_EQ(played.bytes, 800);  // both count the whole bucket
}

// With one layer there is nothing to hide the gather beside: 7 + 20 + 10 + 6 + 4 = 47, at the start of
// the step or at its end.
TEST(ShardedTest, GatheringBeforeTheNextForwardCostsOneLayerAsMuch) {
  const Program program = testing::chain({{us(20), us(10), Bytes(400), us(8)}});
  for (const auto sync :
       {schedule::ParameterSync::AfterUpdate, schedule::ParameterSync::NextForward}) {
    Schedule schedule = per_gradient(program);
    schedule.buckets[0].collective = Collective::ReduceScatter;
    schedule.parameters = sync;
    const models::Costs costs = scatter_6_gather_7(program);
    EXPECT_EQ(played_under(program, schedule, costs).step_us, 47);
  }
}

// Two layers of forward 20, backward 10, update 8 (half of it on each rank). At the start of the step
// the second gather hides beside the first forward; behind the updates both are exposed.
//   next forward  gathers 0..7 and 7..14, forwards 7..27..47, backwards ..57..67, scatters 57..63 and
//                 67..73, updates 67..71 (waited for bucket 0 until 63) and 73..77        -> 77
//   after update  forwards 0..40, backwards ..50..60, scatters 50..56, 60..66, updates 60..64 and
//                 66..70, gathers behind the second scatter: 66..73 and 73..80            -> 80
TEST(ShardedTest, A24GatheringBeforeTheNextForwardHidesBesideIt) {
  const Program program =
      testing::chain(std::vector<testing::Layer>(2, {us(20), us(10), Bytes(400), us(8)}));
  const auto step = [&](schedule::ParameterSync sync) {
    Schedule schedule = per_gradient(program);
    for (Bucket& bucket : schedule.buckets) bucket.collective = Collective::ReduceScatter;
    schedule.parameters = sync;
    const models::Costs costs = scatter_6_gather_7(program);
    return played_under(program, schedule, costs).step_us;
  };
  EXPECT_EQ(step(schedule::ParameterSync::NextForward), 77);
  EXPECT_EQ(step(schedule::ParameterSync::AfterUpdate), 80);
}

// ZeRO-3: two layers of forward 20, backward 10, update 8 (half of it on each rank), gathers of 7 and
// scatters of 6 on one stream. The second layer stays from forward to backward.
//   one ahead    gathers 0..7 and 7..14, forwards 7..27..47, the first layer again 47..54 beside the
//                backward 47..57, the other one ..67, scatters 57..63 and 67..73, updates 67..71 and
//                73..77                                                                          -> 77
//   none ahead   gather 0..7, forward ..27, gather ..34, forward ..54, backward ..64, scatter ..70 and
//                only then the gather ..77, backward ..87, scatter ..93, updates 87..91, 93..97  -> 97
TEST(ShardedTest, GatheringOneBlockAheadHidesBesideTheBlockBeforeIt) {
  Program program =
      testing::chain(std::vector<testing::Layer>(2, {us(20), us(10), Bytes(400), us(8)}));
  for (schedule::Op& op : program.ops) {
    if (op.name == "l0.backward") op.reads.push_back(TensorId{0});
    if (op.name == "l1.backward") op.reads.push_back(TensorId{2});
  }
  ASSERT_EQ(program.tensor(TensorId{2}).name, "l1");
  const auto played = [&](const std::string& policy) {
    return played_under(program, make_schedule(program, schedule::parse_policy(policy)),
                        scatter_6_gather_7(program));
  };
  EXPECT_EQ(played("fsdp:prefetch=1").step_us, 77);
  EXPECT_EQ(played("fsdp:prefetch=0").step_us, 97);
  EXPECT_EQ(played("fsdp:prefetch=1").collectives, 5);  // three gathers, two scatters
  EXPECT_EQ(played("fsdp:prefetch=1,reshard=no").collectives, 4);
}

// The same two layers with the second one frozen, as of a job that trains adapters. None ahead: gather 0..7, forward ..27,
// gather ..34, forward ..54, backward ..64, gather ..71, backward ..81, scatter ..87, update ..91. Gathers and the only
// scatter alone take 3 x 7 + 6.
TEST(ShardedTest, FrozenLayersTakeTheTimeOfTheirGathers) {
  Program program =
      testing::chain(std::vector<testing::Layer>(2, {us(20), us(10), Bytes(400), us(8)}));
  for (schedule::Op& op : program.ops) {
    if (op.name == "l0.backward") op.reads.push_back(TensorId{0});
    if (op.name == "l1.backward") op.reads.push_back(TensorId{2});
  }
  program = testing::frozen(program, TensorId{2});
  const auto played = [&](const schedule::Schedule& schedule) {
    return played_under(program, schedule, scatter_6_gather_7(program));
  };
  Schedule schedule = make_schedule(program, schedule::parse_policy("fsdp:prefetch=0"));
  EXPECT_EQ(played(schedule).step_us, 91);
  EXPECT_EQ(played(schedule).collectives, 4);
  // As if frozen layers lay whole on every rank.
  std::erase_if(schedule.gathers, [&](const schedule::ParameterGather& gather) {
    return gather.bucket == schedule.frozen.front().id;
  });
  schedule.frozen.clear();
  EXPECT_EQ(played(schedule).step_us, 84);
}

// Three layers with adapters: ops of 5, collectives of 1 and 10 ns a byte. The matrices of 4,000 bytes are gathered five
// times, the last layer's once, 41 each; 15 ops and what adapters send are a third of that.
TEST(ShardedTest, AJobThatTrainsAdaptersTakesTheTimeInWhichItsModelIsGathered) {
  const Program program = testing::with_adapters(3, Bytes(4000), Bytes(40), us(5));
  const models::Costs costs = testing::costs_of({.collective = testing::line(us(1), 10)}, program);
  const auto played = [&](const std::string& policy) {
    return played_under(program, make_schedule(program, schedule::parse_policy(policy)), costs);
  };
  const Played sharded = played("fsdp:prefetch=1");
  EXPECT_GT(sharded.step_us, 5 * 41);
  EXPECT_LT(sharded.step_us, 5 * 41 + 15 * 5);
  EXPECT_EQ(sharded.bytes, 5 * 4000 + (5 + 3) * 40);
  EXPECT_LT(played("sharded:p=1").step_us, 100);  // the model lies whole on every rank
}

}  // namespace
}  // namespace dovetail::sim
