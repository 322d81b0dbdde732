// Calibration primitives on ranks as threads with a slow shared-memory link. Times are compared
// only with what the link is known to sleep.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/calibrate/calibrate.h"

#include "base/error.h"
#include "tests/exec/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace dovetail::exec::calibrate {
namespace {

using namespace std::chrono_literals;
using testing::ThreadRanks;
using testing::two_buckets;

void on_ranks(std::int64_t count, std::chrono::microseconds delay,
              const std::function<void(Rig&)>& body) {
  ThreadRanks ranks(count, delay);
  ranks.run([&](Rank rank) {
    Rig rig(ranks.exchange(rank), ranks.ports(rank));
    body(rig);
  });
}

TEST(CalibrateTest, SpreadIsByNearestRank) {
  // Sorted 10..50: positions 0.4, 2 and 3.6 of 0..4 are nearest to 0, 2 and 4.
  const Spread spread = spread_of({50, 10, 40, 20, 30});
  EXPECT_EQ(spread, (Spread{Duration(10), Duration(30), Duration(50)}));
  EXPECT_EQ(spread_of({7}), (Spread{Duration(7), Duration(7), Duration(7)}));
}

TEST(CalibrateTest, CommunicationIsRemovedButNoOp) {
  const schedule::ScheduledProgram ops =
      without_communication(two_buckets({.mode = schedule::BucketMode::Copy}));
  ASSERT_EQ(ops.roles[0].commands.size(), ops.program.ops.size());
  for (std::size_t i = 0; i < ops.program.ops.size(); ++i) {
    const auto& run = std::get<schedule::RunOp>(ops.roles[0].commands[i].action);
    EXPECT_EQ(run.op, ops.program.ops[i].id);
  }
  EXPECT_EQ(ops.streams.size(), 1U);
}

TEST(CalibrateTest, EveryOpIsMeasuredOnEveryRank) {
  const schedule::ScheduledProgram plan = two_buckets({});
  on_ranks(2, 0us, [&](Rig& rig) {
    const ComputeTimes times = measure_ops(rig, plan, 5);
    const std::vector<OpTime>& ops = times.ops;
    ASSERT_EQ(ops.size(), plan.program.ops.size());
    for (std::size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(ops[i].op, plan.program.ops[i].id);
      EXPECT_EQ(ops[i].by_rank.size(), 2U);
      EXPECT_GT(ops[i].time.p10, Duration{});
      EXPECT_LE(ops[i].time.p10, ops[i].time.median);
      EXPECT_LE(ops[i].time.median, ops[i].time.p90);
    }
    EXPECT_LE(times.slowest.p10, times.slowest.median);
    EXPECT_LE(times.slowest.median, times.slowest.p90);
  });
}

TEST(CalibrateTest, OpsWithEqualWorkAreOneKernel) {
  // The four GEMMs are alike, so are the two updates. Medians 10 20 30 40 have the nearest-rank
  // median 30 (position 1.5 rounds up), 5 and 7 have 7.
  const schedule::Program program = testing::two_layers(1);
  std::vector<OpTime> ops;
  for (const int ns : {10, 20, 30, 40, 5, 7}) {
    const Spread spread = {Duration(ns - 1), Duration(ns), Duration(ns + 1)};
    ops.push_back({program.ops[ops.size()].id, spread, {}});
  }
  const std::vector<WorkTime> works = by_work(program, ops);
  ASSERT_EQ(works.size(), 2U);
  EXPECT_EQ(works[0].work, program.ops[0].work);
  EXPECT_EQ(works[0].time, (Spread{Duration(29), Duration(30), Duration(31)}));
  EXPECT_EQ(works[1].work, program.ops[4].work);
  EXPECT_EQ(works[1].time, (Spread{Duration(6), Duration(7), Duration(8)}));
}

TEST(CalibrateTest, CollectivesAreMeasuredBySizeAndTakeAtLeastTheirDelay) {
  on_ranks(2, 500us, [](Rig& rig) {
    const std::vector<CollectiveTimes> times =
        measure_collectives(rig, {.smallest = Bytes(4), .largest = Bytes(32), .pause = 100us});
    ASSERT_EQ(times.size(), 4U);
    for (std::size_t i = 0; i < times.size(); ++i) {
      EXPECT_EQ(times[i].bytes, Bytes(std::int64_t{4} << i));
      EXPECT_GE(times[i].back_to_back, 500us * 7 / 8);  // arrivals differ by at most one of eight
      EXPECT_GT(times[i].isolated.median, Duration{});
    }
  });
}

TEST(CalibrateTest, ScattersAreRoundedToWholeShards) {
  on_ranks(2, 0us, [](Rig& rig) {
    const std::vector<CollectiveTimes> times =
        measure_collectives(rig, {.kind = schedule::Collective::ReduceScatter,
                                  .smallest = Bytes(4),
                                  .largest = Bytes(16),
                                  .pause = 10us});
    // 4 and 8 bytes both mean two shards of one float.
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].bytes, Bytes(8));
    EXPECT_EQ(times[1].bytes, Bytes(16));
  });
}

TEST(CalibrateTest, SizesStopWhereTheBudgetEnds) {
  // Each call sleeps 2 ms. The first size takes 4 lone calls and 3 queues of 8 at least, 56 ms, so
  // a budget of 60 ms leaves nothing for the other nine; without a budget there would be ten sizes.
  on_ranks(2, 2ms, [](Rig& rig) {
    const std::vector<CollectiveTimes> times = measure_collectives(
        rig, {.smallest = Bytes(4), .largest = Bytes(2048), .budget = 60ms, .pause = 0us});
    EXPECT_EQ(times.size(), 1U);
  });
}

TEST(CalibrateTest, TheSkewIsTheSlowestRanksStepAboveTheMedians) {
  const auto op_of = [](std::int32_t id, Duration median) {
    const Spread all = {.p10 = median, .median = median, .p90 = median};
    return OpTime{.op = OpId{id}, .time = all, .by_rank = {}};
  };
  ComputeTimes times{.ops = {op_of(0, 30us), op_of(1, 70us)},
                     .slowest = {.p10 = 100us, .median = 110us, .p90 = 120us}};
  EXPECT_DOUBLE_EQ(times.skew(), 110.0 / 100 - 1);
  times.slowest.median = 90us;  // never faster than the medians
  EXPECT_EQ(times.skew(), 0);
  EXPECT_EQ(ComputeTimes{}.skew(), 0);
}

TEST(CalibrateTest, EveryRankKnowsTheSameResult) {
  const schedule::ScheduledProgram plan = two_buckets({.ranks = 3});
  std::vector<Duration> medians(3);
  std::vector<HostTimes> hosts(3);
  on_ranks(3, 0us, [&](Rig& rig) {
    const auto rank = static_cast<std::size_t>(rig.exchange().rank.value);
    medians[rank] = measure_ops(rig, plan, 3).ops[2].time.median;
    hosts[rank] = measure_host(rig);
  });
  EXPECT_THAT(medians, ::testing::Each(medians[0]));
  EXPECT_GT(hosts[0].launch, Duration{});
  for (const HostTimes& host : hosts) {
    EXPECT_EQ(host.launch, hosts[0].launch);
    EXPECT_EQ(host.wake_up, hosts[0].wake_up);
  }
}

TEST(CalibrateTest, ContentionComparesTheSameOpsBesideAQueue) {
  const schedule::ScheduledProgram plan = two_buckets({});
  on_ranks(2, 300us, [&](Rig& rig) {
    const std::vector<RankContention> contention =
        measure_contention(rig, plan, {.bytes = kib(4), .compute_time = 20ms});
    ASSERT_EQ(contention.size(), 2U);
    for (const RankContention& of_rank : contention) {
      EXPECT_GT(of_rank.compute_slowdown, 0);
      EXPECT_GT(of_rank.collective_slowdown, 0);
      EXPECT_GT(of_rank.comm_thread_share, 0);
      EXPECT_LT(of_rank.comm_thread_share, 1);  // it mostly sleeps
    }
  });
}

TEST(CalibrateTest, APlanWithoutBackwardHasNoContentionToMeasure) {
  schedule::ScheduledProgram plan = two_buckets({.ranks = 1});
  for (schedule::Op& op : plan.program.ops) op.phase = schedule::Phase::Forward;
  on_ranks(1, 0us, [&](Rig& rig) { EXPECT_THROW(measure_contention(rig, plan), InputError); });
}

TEST(CalibrateTest, ADeadLinkEndsTheCalibration) {
  ThreadRanks ranks(1);
  ranks.run([&](Rank rank) {
    Rig rig(ranks.exchange(rank), ranks.ports(rank));
    ranks.cut(rank);
    EXPECT_THROW(measure_collectives(rig), DeviceError);
  });
}

TEST(CalibrateTest, AWholeCalibrationHoldsEveryPart) {
  const schedule::ScheduledProgram plan = two_buckets({});
  std::vector<std::string> told;
  on_ranks(2, 100us, [&](Rig& rig) {
    Options options;
    options.op_steps = 3;
    options.collectives = {.smallest = kib(64), .largest = kib(512), .pause = 100us};
    options.halves = {.kind = schedule::Collective::ReduceScatter,
                      .smallest = kib(4),
                      .largest = kib(64),
                      .growth = 4,
                      .pause = 100us};
    options.variants = {plan};
    options.variant_steps = 2;
    options.contention.compute_time = 5ms;
    if (rig.exchange().rank == Rank{0}) {
      options.progress = [&](std::string_view what) { told.emplace_back(what); };
    }
    const Calibration result = calibrate(rig, plan, options);
    EXPECT_EQ(result.ops.size(), 6U);
    EXPECT_EQ(result.works.size(), 2U);
    EXPECT_GT(result.unit_kernel.median, Duration{});
    ASSERT_EQ(result.variants.size(), 1U);
    EXPECT_EQ(result.variants[0].size(), 6U);
    EXPECT_GT(result.copies.ns_per_byte, 0);
    EXPECT_GT(result.scales.ns_per_byte, 0);
    EXPECT_EQ(result.collectives.size(), 4U);
    EXPECT_EQ(result.reduce_scatter.size(), 3U);  // 4, 16 and 64 KiB
    EXPECT_EQ(result.all_gather.size(), 3U);
    EXPECT_EQ(result.contention.size(), 2U);
    EXPECT_EQ(result.tiny_collectives.size(), 2U);
    EXPECT_TRUE(result.conditions.spread.has_value());
    EXPECT_TRUE(result.conditions.fit_residual.has_value());
    EXPECT_EQ(result.verdict.valid, result.verdict.reasons.empty());
    EXPECT_EQ(result.disturbances.size(), 2U);
    ASSERT_EQ(result.steps.size(), 7U);
    EXPECT_EQ(result.steps.front().name, "ops of the step");
    EXPECT_EQ(result.steps.back().name, "contention");
  });
  EXPECT_THAT(told, ::testing::ElementsAre("ops of the step", "ops of " + plan.policy,
                                           "unit kernel and copies", "launching and waiting",
                                           "collectives by size",
                                           "reduce-scatter and all-gather by size", "contention"));
}

}  // namespace
}  // namespace dovetail::exec::calibrate
