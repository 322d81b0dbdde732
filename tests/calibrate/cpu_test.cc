// Calibration primitives on ranks as threads with a slow shared-memory link. Times are compared only
// with what the link is known to sleep, and only from below, so that no machine is too slow for them;
// what is computed from times is computed from given ones.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cpu/calibrate.h"
#include "calibrate/cpu/network_shield.h"

#include "base/error.h"
#include "exec/compute_only.h"
#include "tests/exec/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace dovetail::calibrate {
namespace {

using namespace std::chrono_literals;
using exec::testing::ThreadRanks;
using exec::testing::two_buckets;

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
      exec::without_communication(two_buckets({.mode = schedule::BucketMode::Copy}));
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
  const schedule::Program program = exec::testing::two_layers(1);
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
        measure_collectives(rig, {.smallest = Bytes(4),
                                  .largest = Bytes(32),
                                  .budget = std::chrono::hours(1),
                                  .pause = 100us});
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
                                  .budget = std::chrono::hours(1),
                                  .pause = 10us});
    // 4 and 8 bytes both mean two shards of one float.
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].bytes, Bytes(8));
    EXPECT_EQ(times[1].bytes, Bytes(16));
  });
}

TEST(CalibrateTest, SizesStopWhereTheBudgetEnds) {
  // By the test's own clock a size takes 56 ms. Before the first one a call is taken to last 1 ms:
  // three lone calls and three queues of eight need 27 of the 60 ms. After it 4 ms are left, too
  // little for calls that sleep 2 ms. If no time passes there are ten sizes.
  for (const std::int64_t ms_per_size : {56, 0}) {
    on_ranks(2, ms_per_size > 0 ? 2ms : 0ms, [&](Rig& rig) {
      std::int64_t reads = 0;  // at the start, then before each size
      const auto now = [&] {
        return std::max<std::int64_t>(0, reads++ - 1) * ms_per_size * 1'000'000;
      };
      const Duration budget = ms_per_size > 0 ? Duration(60ms) : Duration(std::chrono::hours(1));
      const std::vector<CollectiveTimes> times = measure_collectives(rig, {.smallest = Bytes(4),
                                                                           .largest = Bytes(2048),
                                                                           .budget = budget,
                                                                           .pause = 0us,
                                                                           .now = now});
      EXPECT_EQ(times.size(), ms_per_size > 0 ? 1U : 10U);
    });
  }
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

exec::Timing timing(std::int32_t command, std::int64_t from_us, std::int64_t to_us) {
  return {CommandId{command}, StreamId{0}, 0, from_us * 1000, to_us * 1000};
}

// Two ops take 20 and 30 us alone. Beside the queue, from 100 to 400 us, the first takes 30 and 30,
// the second 60: 120 us instead of 20 + 20 + 30, 12/7. The op that ends after the queue does not
// count. Of the collectives, the second and the third lie between the ops, 130 to 330 us: 60 us each
// instead of 40, and half of the 50 us that the ops took more are due to either.
TEST(CalibrateTest, ContentionComparesTheSameOpsBesideAQueue) {
  const std::array alone = {timing(0, 0, 20), timing(1, 20, 50), timing(0, 60, 80),
                            timing(1, 80, 110)};
  const std::array ops = {timing(0, 130, 160), timing(1, 160, 220), timing(0, 300, 330),
                          timing(1, 380, 440)};
  const std::array queue = {timing(9, 100, 160), timing(9, 160, 220), timing(9, 230, 290),
                            timing(9, 340, 400)};
  const RankContention found =
      compare({.alone = alone, .ops = ops, .queue = queue, .lone_collective = 40us});
  EXPECT_EQ(found.collectives, 2);
  EXPECT_DOUBLE_EQ(found.compute_slowdown, 12.0 / 7);
  EXPECT_DOUBLE_EQ(found.collective_slowdown, 1.5);
  EXPECT_EQ(found.cpu_per_collective, 25us);
}

// Preemptions of 60, 50 and 2 ms delay a collective by 18 + 28 = 46 ms where the network goes on for 32 ms.
TEST(CalibrateTest, TheShieldIsWhatPreemptionsDoNotDelay) {
  const std::array<Duration, 3> away = {60ms, 50ms, 2ms};
  EXPECT_NEAR(static_cast<double>(shield_explaining(46ms, away).count()), 32e6, 1e3);
  EXPECT_EQ(shield_explaining(0ms, away), 60ms);
  EXPECT_LE(shield_explaining(200ms, away), 1us);
  EXPECT_EQ(shield_explaining(5ms, {}), 0ms);
}

// Four calls of 10 ms from 100 ms on; the third met a preemption that made it last 25 ms, and the fourth found
// half of its data there already.
TEST(CalibrateTest, CallsThatMetNoPreemptionStandForTheOthers) {
  constexpr std::int64_t kMs = 1'000'000;
  const Repetition queue = {.arrived_ns = 100 * kMs,
                            .done_ns = {110 * kMs, 120 * kMs, 145 * kMs, 150 * kMs}};
  traces::CoreRecord quiet;
  quiet.watched = 200ms;
  traces::CoreRecord away = quiet;
  away.taken = {{.start = 25ms, .length = 15ms}};
  const traces::Disturbances all = {away, quiet};
  const Preemptions preemptions = {.begin_ns = 100 * kMs,
                                   .silences = {traces::silences(away, 5ms)},
                                   .restless = traces::restless(all)};
  const Sample sample = sample_of(queue, preemptions);
  EXPECT_EQ(sample.met, Met::Nothing);
  EXPECT_EQ(sample.ns, 40 * kMs);

  // Nothing calm is left of the third alone: 10 of its 25 ms were silence.
  const Sample stopped = sample_of({.arrived_ns = 120 * kMs, .done_ns = {145 * kMs}}, preemptions);
  EXPECT_EQ(stopped.met, Met::Silences);
  EXPECT_EQ(stopped.ns, 15 * kMs);
}

// A message of 8 ms never fits between bursts of 5 ms in every 17: what ends in one of them is seen late.
TEST(CalibrateTest, WhatAlwaysMeetsPreemptionsIsJudgedByTheQuickestFifth) {
  const auto of = [](Met met, std::vector<std::int64_t> times) {
    std::vector<Sample> samples;
    for (const std::int64_t time : times) samples.push_back({.ns = time, .met = met});
    return samples;
  };
  std::vector<Sample> samples = of(Met::Preemptions, {99, 81, 123, 82, 104, 98, 110, 97, 101, 83});
  EXPECT_EQ(undisturbed(samples), (std::vector<std::int64_t>{81, 82}));
  // A few that stood still change nothing, and neither do a few calm ones.
  samples.push_back({.ns = 60, .met = Met::Silences});
  samples.push_back({.ns = 90, .met = Met::Nothing});
  EXPECT_EQ(undisturbed(samples), (std::vector<std::int64_t>{81, 82, 83}));
  for (int i = 0; i < 5; ++i) samples.push_back({.ns = 90, .met = Met::Nothing});
  EXPECT_EQ(undisturbed(samples), std::vector<std::int64_t>(6, 90));
  // Of what always stood still nothing is known but the estimates.
  const std::vector<Sample> silent = of(Met::Silences, {70, 60, 80});
  EXPECT_EQ(undisturbed(silent), (std::vector<std::int64_t>{70, 60, 80}));
}

TEST(CalibrateTest, OpsThatRanBesideNoCollectiveWereNotSlowedDown) {
  const exec::Timing op = timing(0, 0, 20);
  const exec::Timing collective = timing(9, 30, 40);
  const RankContention found = compare({.alone = std::span(&op, 1),
                                        .ops = std::span(&op, 1),
                                        .queue = std::span(&collective, 1),
                                        .lone_collective = 10us});
  EXPECT_EQ(found.collectives, 0);
  EXPECT_EQ(found.compute_slowdown, 1);
  EXPECT_EQ(found.collective_slowdown, 1);
}

TEST(CalibrateTest, EveryRankKnowsTheContentionOfAll) {
  const schedule::ScheduledProgram plan = two_buckets({});
  std::vector<std::vector<RankContention>> known(2);
  on_ranks(2, 300us, [&](Rig& rig) {
    known[static_cast<std::size_t>(rig.exchange().rank.value)] =
        measure_contention(rig, plan, {.bytes = kib(4), .compute_time = 20ms});
  });
  ASSERT_EQ(known[0].size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const RankContention& first = known[0][rank];
    const RankContention& second = known[1].at(rank);
    EXPECT_EQ(first.compute_slowdown, second.compute_slowdown);
    EXPECT_EQ(first.collective_slowdown, second.collective_slowdown);
    EXPECT_EQ(first.cpu_per_collective, second.cpu_per_collective);
    EXPECT_EQ(first.collectives, second.collectives);
    EXPECT_EQ(first.comm_thread_share, second.comm_thread_share);
    EXPECT_LT(first.comm_thread_share, 1);  // it sleeps 300 us in each collective
  }
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

TEST(CalibrateTest, WhatNoPlanNeedsIsNotMeasured) {
  const schedule::ScheduledProgram plan = two_buckets({});
  on_ranks(1, 0us, [&](Rig& rig) {
    Options options;
    options.op_steps = 1;
    options.unit_kernel = {.units = 1, .chains = 1};
    options.arena = mib(4);
    options.collectives = {.smallest = kib(4),
                           .largest = kib(8),
                           .budget = std::chrono::hours(1),  // for both sizes, on any machine
                           .pause = 0us};
    options.measures_halves = false;
    options.contention.compute_time = 1ms;
    const Calibration result = calibrate(rig, plan, options);
    EXPECT_EQ(result.collectives.size(), 2U);
    EXPECT_TRUE(result.variants.empty());
    EXPECT_TRUE(result.reduce_scatter.empty());
    EXPECT_TRUE(result.all_gather.empty());
    EXPECT_EQ(result.contention.size(), 1U);
  });
}

TEST(CalibrateTest, AWholeCalibrationHoldsEveryPart) {
  const schedule::ScheduledProgram plan = two_buckets({});
  std::vector<std::string> told;
  on_ranks(2, 100us, [&](Rig& rig) {
    Options options;
    options.op_steps = 3;
    options.unit_kernel = {.units = 1, .chains = 1};
    options.arena = mib(4);
    const Duration budget = std::chrono::hours(1);  // for all sizes, on any machine
    options.collectives = {
        .smallest = kib(64), .largest = kib(512), .budget = budget, .pause = 100us};
    options.halves = {.kind = schedule::Collective::ReduceScatter,
                      .smallest = kib(4),
                      .largest = kib(64),
                      .growth = 4,
                      .budget = budget,
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
    for (const CopyTime& line : {result.copies, result.scales}) {
      const double megabyte_ns = static_cast<double>(line.fixed.count()) +
                                 line.ns_per_byte * static_cast<double>(mib(1).count());
      EXPECT_GT(megabyte_ns, 0);
    }
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
}  // namespace dovetail::calibrate
