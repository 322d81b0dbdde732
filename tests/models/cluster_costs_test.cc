// Costs made from a cluster: ops, collectives, copies, and what is said about them.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/cluster.h"

#include "base/error.h"
#include "tests/models/small_cluster.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::models {
namespace {

using dovetail::testing::error_of;
using schedule::Collective;
using schedule::DType;
using schedule::GemmWork;
using schedule::KernelsWork;
using schedule::MemoryWork;
using schedule::Op;
using schedule::ProcessGroup;
using schedule::Program;
using schedule::TimedWork;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Op op_of(std::int32_t id, schedule::Work work) {
  Op op;
  op.id = OpId{id};
  op.name = "op" + std::to_string(id);
  op.work = std::move(work);
  return op;
}

Program program_with_ops(std::vector<Op> ops, std::int32_t ranks = 2) {
  Program program;
  program.world_size = ranks;
  program.ops = std::move(ops);
  ProcessGroup group{.id = GroupId{0}, .name = "dp", .ranks = {}};
  for (std::int32_t rank = 0; rank < ranks; ++rank) group.ranks.push_back(Rank{rank});
  program.groups = {group};
  program.reductions = {{.gradient = TensorId{0}, .group = GroupId{0}}};
  return program;
}

Duration time_of(const Cluster& cluster, const Op& op, Rank rank = Rank{0}) {
  return costs_for(cluster, program_with_ops({op})).op(op, rank);
}

// --------------------------------------------------------------------------- collective tables

TEST(CollectiveOfClusterTest, PrefersWhatWasMeasured) {
  const Cluster cluster = load_cluster("h100x16_tcpxo", kClusters);
  // Measured in place at 16 MiB: all-reduce 951.6 us, all-gather 203.8 us.
  EXPECT_EQ(collective_table(cluster, {Collective::AllReduce, 16}).time(mib(16)).isolated,
            Duration(951600));
  EXPECT_EQ(collective_table(cluster, {Collective::AllGather, 16}).time(mib(16)).isolated,
            Duration(203800));
  EXPECT_EQ(collective_assumption(cluster, {Collective::AllReduce, 16}), "");
}

TEST(CollectiveOfClusterTest, TakesAnAllReduceAsTwiceTheOnlyPublishedAllGather) {
  const Cluster cluster = load_cluster("h100x16_tcpx", kClusters);
  // Measured all-gather in place at 16 MiB: 999.3 us.
  EXPECT_EQ(collective_table(cluster, {Collective::AllReduce, 16}).time(mib(16)).isolated,
            Duration(1998600));
  EXPECT_EQ(collective_assumption(cluster, {Collective::AllReduce, 16}),
            "all-reduce over 16 ranks is taken as twice the all-gather (the reduce-scatter assumed "
            "equal to it)");
}

TEST(CollectiveOfClusterTest, AddsReduceScatterAndAllGather) {
  Cluster cluster = small_cluster();
  cluster.collectives = {series_of(Collective::ReduceScatter),
                         {.collective = Collective::AllGather,
                          .ranks = 2,
                          .nodes = 1,
                          .times = AlphaBeta{microseconds(5), 1}}};
  // Expectation at 1500 bytes: 15 us + (5 + 1.5) us.
  EXPECT_EQ(collective_table(cluster, {Collective::AllReduce, 2}).time(Bytes(1500)).isolated,
            Duration(21500));
}

TEST(CollectiveOfClusterTest, TakesHalfAnAllReduceForEitherPart) {
  const Cluster cluster = small_cluster();
  for (const Collective part : {Collective::ReduceScatter, Collective::AllGather}) {
    EXPECT_EQ(collective_table(cluster, {part, 2}).time(Bytes(2000)).isolated, microseconds(10));
  }
}

TEST(CollectiveOfClusterTest, RefusesRanksItHasNoTableFor) {
  const Cluster cluster = load_cluster("mi300x8", kClusters);
  EXPECT_EQ(error_of([&] {
              static_cast<void>(collective_table(cluster, {{}, 64}));
            }),
            "cluster mi300x8: no table of all-reduce over 64 ranks; it has tables for ranks: 8; "
            "docs/machines.md says how to bring one");
}

// ------------------------------------------------------------------------------------- costs

TEST(CostsTest, AGemmTakesItsFlopWhereThoseDominate) {
  // 2 * 1000^3 FLOP at 0.5 * 10^12 per second: 4 ms. Its 12 MB at 8 GB/s: 1.5 ms. Overhead 1 us.
  EXPECT_EQ(time_of(small_cluster(), op_of(0, GemmWork{1000, 1000, 1000})),
            milliseconds(4) + microseconds(1));
}

TEST(CostsTest, AThinGemmTakesItsTraffic) {
  // m = n = 1000, k = 1: 2 * 10^6 FLOP take 4 us; 4 * (1000 + 1000 + 10^6) bytes at 8 GB/s take
  // 501 us. Overhead 1 us.
  EXPECT_EQ(time_of(small_cluster(), op_of(0, GemmWork{1000, 1000, 1})), microseconds(502));
}

TEST(CostsTest, MemoryWorkTakesItsBytesAtFourFifthsOfTheRate) {
  // 8 * 10^6 bytes at 0.8 * 10 GB/s: 1 ms, plus 1 us.
  EXPECT_EQ(time_of(small_cluster(), op_of(0, MemoryWork{Bytes(8'000'000), Flop(0)})),
            milliseconds(1) + microseconds(1));
}

TEST(CostsTest, AMeasuredKernelWinsOverTheRoofline) {
  Cluster cluster = small_cluster();
  cluster.kernels = {{DType::F32, GemmWork{1000, 1000, 1000}, milliseconds(7), {}, {}},
                     {DType::F32, MemoryWork{Bytes(80), Flop(0)}, microseconds(3), {}, {}}};
  EXPECT_EQ(time_of(cluster, op_of(0, GemmWork{1000, 1000, 1000})), milliseconds(7));
  EXPECT_EQ(time_of(cluster, op_of(0, MemoryWork{Bytes(80), Flop(0)})), microseconds(3));
  // One column more, or another dtype, is another kernel: the roofline's 4.004 and 4 ms again.
  EXPECT_EQ(time_of(cluster, op_of(0, GemmWork{1000, 1001, 1000})),
            microseconds(4004) + microseconds(1));
  cluster.kernels[0].dtype = DType::BF16;
  EXPECT_EQ(time_of(cluster, op_of(0, GemmWork{1000, 1000, 1000})), microseconds(4001));
}

// A product of 4.001 ms, a pass of 1.001 ms, each by the roofline; the host issues both.
TEST(CostsTest, SeveralKernelsTakeTheirSumAndAreIssuedOneByOne) {
  Cluster cluster = small_cluster();
  cluster.host.run_op = microseconds(5);
  const KernelsWork work{{GemmWork{1000, 1000, 1000}, MemoryWork{Bytes(8'000'000), Flop(0)}}};
  const Op op = op_of(0, work);
  EXPECT_EQ(time_of(cluster, op), milliseconds(5) + microseconds(2));
  const Costs costs = costs_for(cluster, program_with_ops({op}));
  EXPECT_EQ(costs.issue(op), microseconds(10));
  // One of them measured.
  cluster.kernels = {{DType::F32, GemmWork{1000, 1000, 1000}, milliseconds(7), {}, {}}};
  EXPECT_EQ(time_of(cluster, op), milliseconds(8) + microseconds(1));
  // The whole op measured, by its name: another op of these kernels is not.
  cluster.kernels.push_back({DType::F32, work, milliseconds(2), {}, {}, "op0"});
  EXPECT_EQ(time_of(cluster, op), milliseconds(2));
  EXPECT_EQ(time_of(cluster, op_of(1, work)), milliseconds(8) + microseconds(1));
  EXPECT_EQ(time_of(cluster, op_of(0, KernelsWork{{work.kernels[1], work.kernels[0]}})),
            milliseconds(8) + microseconds(1));
}

TEST(CostsTest, TimedWorkTakesWhatWasMeasuredOnItsRank) {
  Cluster cluster = small_cluster();
  cluster.compute.reset();
  const Op op = op_of(7, TimedWork{{milliseconds(1), milliseconds(2)}});
  const Costs costs = costs_for(cluster, program_with_ops({op}));
  EXPECT_EQ(costs.op(op, Rank{0}), milliseconds(1));
  EXPECT_EQ(costs.op(op, Rank{1}), milliseconds(2));
  EXPECT_EQ(costs.distinct_ranks, 2);
}

TEST(CostsTest, OneTimeHoldsForAllRanks) {
  const Op op = op_of(7, TimedWork{{milliseconds(1)}});
  const Costs costs = costs_for(small_cluster(), program_with_ops({op}));
  EXPECT_EQ(costs.op(op, Rank{1}), milliseconds(1));
  EXPECT_EQ(costs.distinct_ranks, 1);
}

TEST(CostsTest, SaysThatThereIsNoComputeSection) {
  Cluster cluster = small_cluster();
  cluster.compute.reset();
  EXPECT_EQ(error_of([&] {
              time_of(cluster, op_of(0, GemmWork{8, 8, 8}));
            }),
            "cluster two: no duration for op op0: no measured kernel matches it and the cluster "
            "has no compute section; dovetail import nccl-tests adds one: --gpu NAME, or --over "
            "CLUSTER");
}

// 2e18 FLOP at half of 1 TFLOP/s: 46 days.
TEST(CostsTest, SaysWhichOpWouldTakeLongerThanAnyStep) {
  const Cluster cluster = small_cluster();
  EXPECT_EQ(error_of([&] {
              time_of(cluster, op_of(0, GemmWork{1'000'000, 1'000'000, 1'000'000}));
            }),
            "cluster two: op op0 would take 4000000 s; expected at most 1000000 s (eleven days)");
  EXPECT_NO_THROW(time_of(cluster, op_of(0, GemmWork{100'000, 1'000'000, 1'000'000})));
}

// As many repetitions as a file may state.
TEST(CostsTest, RepetitionsOfTheUnitKernelDoNotOverflow) {
  Cluster cluster = small_cluster();
  const GemmWork unit{64, 64, 64};
  cluster.unit_kernel = UnitKernel{};
  cluster.unit_kernel->gemm = unit;
  cluster.unit_kernel->time = kLongestTime;
  GemmWork many = unit;
  many.count = std::int64_t{1} << 40;
  EXPECT_THROW(time_of(cluster, op_of(0, many)), InputError);
}

TEST(CostsTest, SaysWhichDtypesHaveAPeak) {
  Op op = op_of(0, GemmWork{8, 8, 8});
  op.dtype = DType::BF16;
  EXPECT_EQ(error_of([&] { time_of(small_cluster(), op); }),
            "cluster two: op op0 is a GEMM of bf16, but compute.gemm.flop_per_s has only f32");
}

TEST(CostsTest, CollectivesAreReadForTheGroupsSize) {
  const Program program = program_with_ops({});
  const Costs costs = costs_for(small_cluster(), program);
  EXPECT_EQ(costs.collective(Collective::AllReduce, program.groups[0], Bytes(1500)).isolated,
            microseconds(15));
  EXPECT_EQ(costs.collective(Collective::AllGather, program.groups[0], Bytes(2000)).isolated,
            microseconds(10));
}

// What is derived loads the link of what it is derived from.
TEST(CostsTest, CollectivesLoadTheLinkThatTheirSeriesNames) {
  Cluster cluster = small_cluster();
  cluster.collectives[0].link = "nvlink";
  cluster.collectives.push_back(series_of(Collective::AllToAll));
  cluster.collectives[1].link = "nic";
  const Costs costs =
      costs_for(parse_cluster("two.json", cluster_to_json(cluster)), program_with_ops({}));
  const auto link_of = [&costs](Collective kind) {
    const CollectiveCost& cost = *costs.find({kind, 2});
    return costs.links.at(static_cast<std::size_t>(cost.loads.at(0).link));
  };
  EXPECT_EQ(link_of(Collective::AllReduce), "nvlink");
  EXPECT_EQ(link_of(Collective::AllGather), "nvlink");
  EXPECT_EQ(link_of(Collective::AllToAll), "nic");
}

TEST(CostsTest, AGroupOfOneRankCommunicatesInNoTime) {
  const Program program = program_with_ops({}, 1);
  const Costs costs = costs_for(small_cluster(), program);
  EXPECT_EQ(costs.collective(Collective::AllReduce, program.groups[0], mib(1)), CollectiveTime{});
}

TEST(CostsTest, RefusesAGroupLargerThanTheTables) {
  EXPECT_EQ(error_of([] { costs_for(small_cluster(), program_with_ops({}, 4)); }),
            "cluster two: no table of all-reduce over 4 ranks; it has tables for ranks: 2; "
            "docs/machines.md says how to bring one");
}

TEST(CostsTest, ACopyReadsAndWritesEachByte) {
  // 2 * 4 * 10^6 bytes at 8 GB/s: 1 ms.
  const Costs costs = costs_for(small_cluster(), program_with_ops({}));
  EXPECT_EQ(costs.copy(Bytes(4'000'000)), milliseconds(1));
}

TEST(CostsTest, AMeasuredCopyWinsOverTheMemoryRate) {
  Cluster cluster = small_cluster();
  cluster.copy = CopyModel{microseconds(5), 2};
  // Expectation: 5 us + 1000 * 2 ns.
  EXPECT_EQ(costs_for(cluster, program_with_ops({})).copy(Bytes(1000)), microseconds(7));
}

TEST(CostsTest, ACopyWithoutAnyRateIsRefusedWhenItIsAsked) {
  Cluster cluster = small_cluster();
  cluster.compute.reset();
  const Costs costs = costs_for(cluster, program_with_ops({}));
  EXPECT_THAT(error_of([&] { static_cast<void>(costs.copy(Bytes(1))); }),
              HasSubstr("cluster two: the plan copies into buckets"));
}

// 1 us and 0.5 ns per byte for sums, 2 ns per byte for sharded updates, 1 ns for scaling.
Cluster cluster_with_passes() {
  Cluster cluster = small_cluster();
  cluster.compute.reset();
  cluster.copy = CopyModel{microseconds(5), 2};
  cluster.passes = {{PassKind::Accumulate, {microseconds(1), 0.5}},
                    {PassKind::ShardUpdate, {{}, 2}},
                    {PassKind::Scale, {{}, 1}}};
  return cluster;
}

Op op_with(schedule::Effect effect, schedule::Work work) {
  Op op = op_of(9, std::move(work));
  op.effect = std::move(effect);
  return op;
}

TEST(CostsTest, AMicroStepTakesTheTimeOfTheKernelThatWasMeasuredOnce) {
  Cluster cluster = small_cluster();
  cluster.kernels = {{DType::F32, GemmWork{8, 8, 8}, microseconds(3), {}, {}, "fc1.forward"}};
  Op op = op_of(0, GemmWork{8, 8, 8});
  op.name = "fc1.forward@2";
  EXPECT_EQ(time_of(cluster, op), microseconds(3));
  op.name =
      "fc1.forward@last";  // no micro-step: a name of its own, so the roofline's 1 us and more
  EXPECT_NE(time_of(cluster, op), microseconds(3));
}

TEST(CostsTest, OpsThatLoweringAddsArePricedThoughTheProgramLacksThem) {
  const Costs costs = costs_for(cluster_with_passes(), program_with_ops({}));
  // Expectation: 1 us + 4000 B x 0.5 ns = 3 us.
  EXPECT_EQ(costs.op(op_with(schedule::Accumulate{}, MemoryWork{Bytes(4000), {}}), Rank{0}),
            microseconds(3));
  // A pass of a kind that was not measured runs like a copy: 5 us + 4000 B / 2 x 2 ns = 9 us.
  EXPECT_EQ(costs.op(op_with(schedule::ZeroFill{}, MemoryWork{Bytes(4000), {}}), Rank{0}),
            microseconds(9));
}

TEST(CostsTest, ARewrittenOpThatKeepsItsIdIsPricedByItsOwnWork) {
  const Op whole = op_with(schedule::Accumulate{}, MemoryWork{Bytes(4000), {}});
  const Costs costs = costs_for(cluster_with_passes(), program_with_ops({whole}));
  EXPECT_EQ(costs.op(whole, Rank{0}), microseconds(3));
  // A quarter of it: 1 us + 1000 B x 0.5 ns.
  EXPECT_EQ(costs.op(op_with(schedule::Accumulate{}, MemoryWork{Bytes(1000), {}}), Rank{0}),
            Duration(1500));
}

TEST(CostsTest, AShardedUpdateOfRepeatedProductsTakesTheirTimeAndAPassOverTheShard) {
  Cluster cluster = cluster_with_passes();
  cluster.unit_kernel = UnitKernel{.gemm = {2, 2, 2, 1}, .time = microseconds(1)};
  // Three products, and 1000 B of gradients read and parameters written at 2 ns per byte.
  const Op update =
      op_with(schedule::ShardUpdate{.gradients = {}, .parameters = {}, .traffic = Bytes(1000)},
              GemmWork{2, 2, 2, 3});
  EXPECT_EQ(time_of(cluster, update), microseconds(5));
  cluster.passes.clear();
  EXPECT_EQ(time_of(cluster, update), microseconds(3));
}

TEST(CostsTest, KernelsAndPassesAreStretchedByTheSkewAndNothingElse) {
  Cluster cluster = cluster_with_passes();
  cluster.kernels = {{DType::F32, GemmWork{8, 8, 8}, microseconds(100)}};
  cluster.skew = 0.1;
  EXPECT_EQ(time_of(cluster, op_of(0, GemmWork{8, 8, 8})), microseconds(110));
  // (1 us + 4000 B x 0.5 ns) x 1.1
  EXPECT_EQ(time_of(cluster, op_with(schedule::Accumulate{}, MemoryWork{Bytes(4000), {}})),
            Duration(3300));
  // What carries its own time has the slowest rank in it already.
  EXPECT_EQ(time_of(cluster, op_of(0, schedule::TimedWork{{microseconds(7)}})), microseconds(7));
}

// The latest of eight is 1.4236 / 0.5642 times as late as the latest of two; a rank by itself waits for nobody.
TEST(CostsTest, TheSkewOfMoreRanksIsThatOfTheLatestOfThem) {
  Cluster cluster = cluster_with_passes();
  cluster.ranks = 2;
  cluster.skew = 0.1;
  EXPECT_NEAR(op_model(cluster, 8).skew, 0.2523, 1e-4);
  EXPECT_DOUBLE_EQ(op_model(cluster, 2).skew, 0.1);
  EXPECT_EQ(op_model(cluster, 1).skew, 0);
  cluster.ranks = 1;  // what one rank saw is no lateness against others
  EXPECT_DOUBLE_EQ(op_model(cluster, 8).skew, 0.1);
}

TEST(PassesTest, AnUpdateThatRepeatsAProductIsAKernelAndTheUpdateOfAShardOfItAlsoAPass) {
  const GemmWork products{2, 2, 2, 3};
  EXPECT_EQ(pass_of(op_with(schedule::Update{}, products)), std::nullopt);
  EXPECT_EQ(pass_of(op_with(schedule::Update{}, MemoryWork{Bytes(8), {}})), PassKind::Update);
  const schedule::ShardUpdate shard{.gradients = {}, .parameters = {}, .traffic = Bytes(1000)};
  EXPECT_EQ(pass_of(op_with(shard, products)), PassKind::ShardUpdate);
  EXPECT_EQ(traffic_of(op_with(shard, products)), Bytes(1000));
  // Measured where it is a pass alone: all that it reads and writes, state too.
  EXPECT_EQ(traffic_of(op_with(shard, MemoryWork{Bytes(4000), {}})), Bytes(4000));
}

TEST(PassesTest, ALineGoesThroughTheSamplesOfEachKind) {
  // 1 us + 2 ns per byte at 1000 and 4000 bytes; zeros were filled in one size only: 3 ns per byte.
  const std::vector<PassSample> samples = {
      {.kind = PassKind::Accumulate, .traffic = Bytes(1000), .time = microseconds(3)},
      {.kind = PassKind::Accumulate, .traffic = Bytes(4000), .time = microseconds(9)},
      {.kind = PassKind::ZeroFill, .traffic = Bytes(1000), .time = microseconds(3)},
      {.kind = PassKind::Update, .traffic = Bytes(0), .time = microseconds(3)}};
  const std::map<PassKind, PassModel> passes = fit_passes(samples);
  ASSERT_EQ(passes.size(), 2U);
  EXPECT_EQ(passes.at(PassKind::Accumulate).time(Bytes(2000)), microseconds(5));
  EXPECT_EQ(passes.at(PassKind::ZeroFill).time(Bytes(500)), Duration(1500));
}

TEST(CostsTest, ScalingReadsAndWritesTheBuffer) {
  // 1000 B are 2000 B of traffic at 1 ns each.
  EXPECT_EQ(costs_for(cluster_with_passes(), program_with_ops({})).scale(Bytes(1000)),
            microseconds(2));
  // Where it was not measured the machine leaves it open, and the simulator takes a copy's time.
  EXPECT_FALSE(costs_for(small_cluster(), program_with_ops({})).scales);
}

TEST(CostsTest, HostAndContentionAreTheClusters) {
  Cluster cluster = small_cluster();
  cluster.host = default_host(BackendKind::Cuda);
  cluster.contention = {1.19, 1, {}};
  const Costs costs = costs_for(cluster, program_with_ops({}));
  EXPECT_EQ(costs.machine, "two");
  EXPECT_EQ(costs.host, cluster.host);
  EXPECT_EQ(costs.contention(Rank{1}), cluster.contention);
}

TEST(AssumptionsTest, AreSaidInSentences) {
  Cluster cluster = small_cluster();
  cluster.kernels = {{DType::F32, GemmWork{8, 8, 8}, microseconds(3), {}, {}}};
  cluster.quality = Quality{.valid = false, .why = {"steal above 2 %", "link disturbed"}};
  const Program program =
      program_with_ops({op_of(0, GemmWork{8, 8, 8}), op_of(1, GemmWork{9, 9, 9})});
  EXPECT_THAT(assumptions(cluster, program, {Collective::AllReduce, Collective::AllGather}),
              ElementsAre("all-gather over 2 ranks is taken as half of the all-reduce",
                          "1 of 2 ops take their time from peak rates, uncalibrated",
                          "bucket copies are assumed to run at 0.8 of the memory rate",
                          "the calibration was not valid: steal above 2 %; link disturbed"));
}

TEST(AssumptionsTest, ATableThatBeginsAtLargeMessagesIsNamed) {
  Cluster cluster = small_cluster();
  cluster.compute.reset();
  auto& points = std::get<std::vector<CollectivePoint>>(cluster.collectives[0].times);
  points[0].bytes = mib(8);
  points[1].bytes = mib(16);
  EXPECT_THAT(
      assumptions(cluster, program_with_ops({op_of(0, TimedWork{{milliseconds(1)}})})),
      ElementsAre(
          "all-reduce over 2 ranks was measured from 8 MiB on; smaller messages follow NCCL's "
          "own estimate from there: off by 17 % in the median, 40 % in one of ten"));
  cluster.backend = BackendKind::Cpu;
  EXPECT_THAT(
      assumptions(cluster, program_with_ops({op_of(0, TimedWork{{milliseconds(1)}})})),
      ElementsAre("all-reduce over 2 ranks was measured from 8 MiB on; smaller messages are "
                  "taken to last as long as that"));
}

TEST(AssumptionsTest, ATableFromWhichACollectiveIsDerivedIsNamedToo) {
  Cluster cluster = small_cluster();
  cluster.compute.reset();
  cluster.collectives[0].collective = Collective::AllGather;
  auto& points = std::get<std::vector<CollectivePoint>>(cluster.collectives[0].times);
  points[0].bytes = mib(8);
  points[1].bytes = mib(16);
  EXPECT_THAT(assumptions(cluster, program_with_ops({op_of(0, TimedWork{{milliseconds(1)}})})),
              ElementsAre(HasSubstr("taken as twice the all-gather"),
                          HasSubstr("all-gather over 2 ranks was measured from 8 MiB on")));
}

TEST(AssumptionsTest, TablesOfDifferentSystemsAreNamed) {
  Cluster cluster = small_cluster();
  cluster.compute.reset();
  cluster.collectives.push_back(cluster.collectives[0]);
  cluster.collectives[1].collective = Collective::AllGather;
  const Program program = program_with_ops({op_of(0, TimedWork{{milliseconds(1)}})});
  const std::vector<Collective> both = {Collective::AllReduce, Collective::AllGather};
  EXPECT_THAT(assumptions(cluster, program, both), IsEmpty());
  cluster.collectives[1].origin = "somebody";
  // A plan that all-reduces stands beside others that do not.
  for (const std::vector<Collective>& used : {both, {Collective::AllReduce}}) {
    EXPECT_THAT(assumptions(cluster, program, used),
                ElementsAre("tables of different people's systems, so what shards and what "
                            "all-reduces cannot be compared here: all-reduce of the cluster's "
                            "own; all-gather of somebody"));
  }
}

TEST(AssumptionsTest, LargeMessagesAreHeldAgainstTheGradients) {
  // A gradient of 4 MiB; the table ends at 1 MiB.
  Cluster cluster = small_cluster();
  auto& points = std::get<std::vector<CollectivePoint>>(cluster.collectives[0].times);
  points[0].bytes = kib(1);
  points[1].bytes = mib(1);
  Program program = program_with_ops({op_of(0, TimedWork{{milliseconds(1)}})});
  program.tensors = {{.id = TensorId{0}, .name = "w.grad", .shape = {1 << 20}}};
  program.tensors[0].kind = schedule::TensorKind::Gradient;
  EXPECT_THAT(assumptions(cluster, program),
              ::testing::Contains("all-reduce over 2 ranks was measured up to 1 MiB; what larger "
                                  "messages take is extrapolated"));
}

TEST(AssumptionsTest, AreNoneWhereAllWasMeasured) {
  Cluster cluster = small_cluster();
  cluster.compute.reset();
  EXPECT_THAT(assumptions(cluster, program_with_ops({op_of(0, TimedWork{{milliseconds(1)}})})),
              IsEmpty());
}

}  // namespace
}  // namespace dovetail::models
