// Calibration on ranks as threads with a slow shared-memory link. Times are compared only
// with what the link is known to sleep, and only from below, so that no machine is too slow for them;
// what is computed from times is computed from given ones.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.h"
#include "calibrate/contention.h"
#include "calibrate/host.h"
#include "calibrate/needs.h"
#include "calibrate/network_shield.h"
#include "calibrate/ops.h"
#include "calibrate/transfers.h"
#include "calibrate/undisturbed.h"

#include "base/error.h"
#include "exec/compute_only.h"
#include "exec/cpu/kernels.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "tests/exec/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace dovetail::calibrate {
namespace {

using namespace std::chrono_literals;
using exec::testing::ThreadRanks;
using exec::testing::two_buckets;
using exec::testing::two_layers;

// Little of everything.
Options little() {
  Options options = on_processors();
  options.pause = 100us;
  options.steps = 3;
  options.variant_steps = 2;
  options.transfer_steps = 3;
  options.smallest = kib(64);
  options.largest = kib(512);
  options.further_largest = kib(64);
  options.budget = std::chrono::hours(1);  // for all sizes, on any machine
  options.further_budget = std::chrono::hours(1);
  options.copies_largest = mib(1);
  options.contention_bytes = kib(4);
  options.contention_time = 5ms;
  options.longest_queue = 50;
  return options;
}

void on_ranks(std::int64_t count, std::chrono::microseconds delay, const Options& options,
              const std::function<void(const Lab&)>& body) {
  ThreadRanks ranks(count, delay);
  ranks.run([&](Rank rank) {
    const exec::Exchange exchange = ranks.exchange(rank);
    const exec::cpu::Ports ports = ranks.ports(rank);
    const MakeBackend make = [&ports](const schedule::ScheduledProgram& plan) {
      return std::make_unique<exec::cpu::CpuBackend>(plan, ports);
    };
    body({.exchange = exchange, .make_backend = make, .options = options, .ranks = count});
  });
}

TEST(CalibrateTest, QuantilesAreByNearestRank) {
  // Sorted 10..50: positions 0.4, 2 and 3.6 of 0..4 are nearest to 0, 2 and 4.
  const Quantiles spread = quantiles_of({50, 10, 40, 20, 30});
  EXPECT_EQ(spread, (Quantiles{Duration(10), Duration(30), Duration(50)}));
  EXPECT_EQ(quantiles_of({7}), (Quantiles{Duration(7), Duration(7), Duration(7)}));
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

TEST(CalibrateTest, EveryOpThatComputesIsMeasured) {
  const schedule::Program program = two_layers(2);
  on_ranks(2, 0us, little(), [&](const Lab& lab) {
    const StepTimes step = measure_step(lab, program);
    ASSERT_EQ(step.kernels.size(), program.ops.size());
    for (std::size_t i = 0; i < step.kernels.size(); ++i) {
      EXPECT_EQ(step.kernels[i].op, program.ops[i].name);
      EXPECT_GT(*step.kernels[i].p10, Duration{});
      EXPECT_LE(*step.kernels[i].p10, step.kernels[i].time);
      EXPECT_LE(step.kernels[i].time, *step.kernels[i].p90);
    }
    EXPECT_LE(step.slowest.p10, step.slowest.median);
    EXPECT_LE(step.slowest.median, step.slowest.p90);
  });
}

// A pipeline's ops of every stage, among them several kernels as one; what communicates is left out.
TEST(CalibrateTest, OfAJobTheOpsOfAllStagesAreMeasured) {
  const schedule::Program program = as_one_stage(jobs::program_of(jobs::parse_job(
      DOVETAIL_SOURCE_DIR
      "/tests/models/networks/data/tiny_llama/config.json:tp=2,pp=2,dtype=f32,seq=8")));
  std::vector<std::string> computing;
  for (const schedule::Op& op : program.ops) {
    if (!schedule::kernels_of(op.work).empty()) computing.push_back(op.name);
  }
  ASSERT_LT(computing.size(), program.ops.size());
  on_ranks(4, 0us, little(), [&](const Lab& lab) {
    std::vector<std::string> measured;
    for (const models::MeasuredKernel& kernel : measure_step(lab, program).kernels) {
      measured.push_back(kernel.op);
      EXPECT_GT(kernel.time, Duration{}) << kernel.op;
    }
    EXPECT_EQ(measured, computing);
  });
}

models::MeasuredKernel kernel_of(const schedule::Op& op, Duration time) {
  return {.dtype = op.dtype,
          .work = std::visit(
              [](const auto& work) -> models::KernelWork {
                if constexpr (std::is_convertible_v<decltype(work), models::KernelWork>) {
                  return work;
                }
                return {};
              },
              op.work),
          .time = time,
          .p10 = time - Duration(1),
          .p90 = time + Duration(1),
          .op = op.name};
}

TEST(CalibrateTest, OpsWithEqualWorkAreOneKernel) {
  // The four GEMMs are alike, so are the two updates. Medians 10 20 30 40 have the nearest-rank
  // median 30 (position 1.5 rounds up), 5 and 7 have 7.
  const schedule::Program program = two_layers(1);
  std::vector<models::MeasuredKernel> kernels;
  for (const int ns : {10, 20, 30, 40, 5, 7}) {
    kernels.push_back(kernel_of(program.ops[kernels.size()], Duration(ns)));
  }
  const std::vector<models::MeasuredKernel> works = by_work(kernels);
  ASSERT_EQ(works.size(), 2U);
  EXPECT_EQ(works[0].work, kernels[0].work);
  EXPECT_EQ(works[0].time, Duration(30));
  EXPECT_EQ(works[0].p10, Duration(29));
  EXPECT_EQ(works[0].p90, Duration(31));
  EXPECT_EQ(works[0].op, "");
  EXPECT_EQ(works[1].work, kernels[4].work);
  EXPECT_EQ(works[1].time, Duration(7));
}

TEST(CalibrateTest, CollectivesAreMeasuredBySizeAndTakeAtLeastTheirDelay) {
  Options options = little();
  options.smallest = Bytes(4);
  options.largest = Bytes(32);
  on_ranks(2, 500us, options, [](const Lab& lab) {
    const std::vector<models::CollectivePoint> times = measure_collectives(lab);
    ASSERT_EQ(times.size(), 4U);
    for (std::size_t i = 0; i < times.size(); ++i) {
      EXPECT_EQ(times[i].bytes, Bytes(std::int64_t{4} << i));
      EXPECT_GE(times[i].back_to_back, 500us * 7 / 8);  // arrivals differ by at most one of eight
      EXPECT_GT(times[i].isolated, Duration{});
    }
  });
}

TEST(CalibrateTest, ScattersAreRoundedToWholeShards) {
  Options options = little();
  options.further_smallest = Bytes(4);
  options.further_largest = Bytes(16);
  options.only_halves = true;
  on_ranks(2, 0us, options, [](const Lab& lab) {
    const auto series = measure_further(lab, two_layers(2), {1, 1});
    ASSERT_EQ(series.size(), 2U);
    const auto& times = std::get<std::vector<models::CollectivePoint>>(series[0].times);
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].bytes, Bytes(8));
    EXPECT_EQ(times[1].bytes, Bytes(16));
  });
}

TEST(CalibrateTest, TheSkewIsTheSlowestRanksStepAboveTheMedians) {
  const schedule::Program program = two_layers(1);
  const std::array kernels = {kernel_of(program.ops[0], 30us), kernel_of(program.ops[1], 70us)};
  EXPECT_DOUBLE_EQ(skew_of(kernels, 110us), 110.0 / 100 - 1);
  EXPECT_EQ(skew_of(kernels, 90us), 0);  // never faster than the medians
  EXPECT_EQ(skew_of({}, 90us), 0);
}

TEST(CalibrateTest, EveryRankKnowsTheSameResult) {
  const schedule::Program program = two_layers(3);
  std::vector<Duration> medians(3);
  std::vector<models::HostModel> hosts(3);
  on_ranks(3, 0us, little(), [&](const Lab& lab) {
    const auto rank = static_cast<std::size_t>(lab.exchange.rank.value);
    medians[rank] = measure_step(lab, program).kernels[2].time;
    hosts[rank] = measure_host(lab, {}, {});
  });
  EXPECT_THAT(medians, ::testing::Each(medians[0]));
  EXPECT_GT(hosts[0].collective, Duration{});
  EXPECT_THAT(hosts, ::testing::Each(hosts[0]));
}

TEST(CalibrateTest, TheUnitKernelIsOneOfAChain) {
  on_ranks(1, 0us, little(), [](const Lab& lab) {
    const schedule::GemmWork gemm = {.m = 8, .n = 8, .k = 8, .count = 1};
    const models::UnitKernel unit = measure_unit_kernel(lab, gemm);
    EXPECT_EQ(unit.gemm, gemm);
    EXPECT_GT(unit.time, Duration{});
  });
}

exec::Timing timing(std::int32_t command, std::int64_t from_us, std::int64_t to_us) {
  return {CommandId{command}, StreamId{0}, 0, from_us * 1000, to_us * 1000};
}

// Two ops take 20 and 30 us alone. Beside the queue, from 100 to 400 us, the first takes 30 and 30,
// the second 60: 120 us instead of 20 + 20 + 30, 12/7. The op that ends after the queue does not
// count. Of the collectives, the second and the third lie between the ops, 130 to 330 us: 60 us each
// instead of 40, and half of the 50 us that the ops took more are due to either.
TEST(CalibrateTest, ContentionComparesTheSameOpsBesideAQueue) {
  const std::map<CommandId, double> alone_ns = {{CommandId{0}, 20e3}, {CommandId{1}, 30e3}};
  const Overlap step = {
      .ops = {timing(0, 130, 160), timing(1, 160, 220), timing(0, 300, 330), timing(1, 380, 440)},
      .collectives = {timing(9, 100, 160), timing(9, 160, 220), timing(9, 230, 290),
                      timing(9, 340, 400)}};
  Beside beside;
  beside.add(step, alone_ns);
  EXPECT_EQ(beside.ops, 3);
  EXPECT_EQ(beside.collectives, 2);
  const models::Contention found = beside.contention(40us);
  EXPECT_DOUBLE_EQ(found.compute_slowdown, 12.0 / 7);
  EXPECT_DOUBLE_EQ(found.collective_slowdown, 1.5);
  EXPECT_EQ(found.collective_cpu, 25us);
}

// Twelve products of 20 us take 24 beside the queue; of nine passes nothing is said, nor of ops whose class is not known.
TEST(CalibrateTest, ClassesAreSlowedDownApart) {
  Overlap step = {.collectives = {timing(9, 0, 1000)}};
  for (std::int64_t i = 0; i < 12; ++i) {
    step.ops.push_back(timing(0, 60 * i, 60 * i + 24));
    step.ops.push_back(timing(1, 60 * i + 30, 60 * i + 50));
    if (i < 9) step.ops.push_back(timing(2, 800 + 20 * i, 820 + 20 * i));
  }
  const std::map<CommandId, double> alone_ns = {
      {CommandId{0}, 20e3}, {CommandId{1}, 20e3}, {CommandId{2}, 10e3}};
  Beside beside;
  beside.add(
      step, alone_ns,
      {{CommandId{0}, models::KernelClass::Gemm}, {CommandId{2}, models::KernelClass::Memory}});
  ASSERT_TRUE(beside.gemm.slowdown());
  EXPECT_DOUBLE_EQ(*beside.gemm.slowdown(), 1.2);
  EXPECT_FALSE(beside.memory.slowdown());
}

TEST(CalibrateTest, OpsThatRanBesideNoCollectiveWereNotSlowedDown) {
  Beside beside;
  beside.add({.ops = {timing(0, 0, 20)}, .collectives = {timing(9, 30, 40)}},
             {{CommandId{0}, 20e3}});
  EXPECT_EQ(beside.collectives, 0);
  EXPECT_EQ(beside.contention(10us), models::Contention{});
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

TEST(CalibrateTest, EveryRankKnowsTheContentionOfAll) {
  const schedule::Program program = two_layers(2);
  std::vector<MeasuredContention> known(2);
  on_ranks(2, 300us, little(), [&](const Lab& lab) {
    known[static_cast<std::size_t>(lab.exchange.rank.value)] = measure_contention(lab, program);
  });
  EXPECT_EQ(known[0].contention, known[1].contention);
  EXPECT_EQ(known[0].ops, known[1].ops);
  EXPECT_EQ(known[0].collectives, known[1].collectives);
}

TEST(CalibrateTest, AWorkloadOfUpdatesOnlyHasNoContentionToMeasure) {
  schedule::Program program = two_layers(1);
  for (schedule::Op& op : program.ops) op.phase = schedule::Phase::Optimizer;
  on_ranks(1, 0us, little(),
           [&](const Lab& lab) { EXPECT_THROW(measure_contention(lab, program), InputError); });
}

TEST(CalibrateTest, ADeadLinkEndsTheCalibration) {
  ThreadRanks ranks(1);
  ranks.run([&](Rank rank) {
    ranks.cut(rank);
    const exec::Exchange exchange = ranks.exchange(rank);
    const MakeBackend make = [&](const schedule::ScheduledProgram& plan) {
      return std::make_unique<exec::cpu::CpuBackend>(plan, ranks.ports(rank));
    };
    const Options options = little();
    EXPECT_THROW(
        measure_collectives({.exchange = exchange, .make_backend = make, .options = options}),
        DeviceError);
  });
}

TEST(CalibrateTest, WhatNoPlanNeedsIsNotMeasured) {
  Options options = little();
  options.measures_further = false;
  on_ranks(2, 0us, options, [&](const Lab& lab) {
    const Calibration result = calibrate(lab, two_layers(2));
    EXPECT_EQ(result.cluster.collectives.size(), 1U);
    EXPECT_FALSE(result.cluster.passes.contains(models::PassKind::ShardUpdate));
    EXPECT_TRUE(result.disturbances.empty());  // nobody watched
  });
}

TEST(CalibrateTest, AWholeCalibrationHoldsEveryPart) {
  const schedule::Program program = two_layers(2);
  Options options = little();
  options.variants = {two_buckets({})};
  std::vector<std::string> told;
  options.progress = [&](std::string_view what) { told.emplace_back(what); };
  on_ranks(2, 100us, options, [&](const Lab& alone) {
    const testbed::ReferenceLoad load(1);
    Lab lab = alone;
    lab.load = &load;
    const Calibration result = calibrate(lab, program);
    const models::Cluster& cluster = result.cluster;
    EXPECT_EQ(cluster.kernels.size(), 6U);
    const double megabyte_ns = static_cast<double>(cluster.copy->fixed.count()) +
                               cluster.copy->ns_per_byte * static_cast<double>(mib(1).count());
    EXPECT_GT(megabyte_ns, 0);
    // 64 to 512 KiB; and 4, 16 and 64 KiB of both halves, and of sends.
    std::vector<std::size_t> sizes;
    for (const models::CollectiveSeries& series : cluster.collectives) {
      sizes.push_back(std::get<std::vector<models::CollectivePoint>>(series.times).size());
    }
    EXPECT_THAT(sizes, ::testing::ElementsAre(4, 3, 3, 3));
    EXPECT_GT(cluster.host.collective, Duration{});
    ASSERT_TRUE(cluster.quality.has_value());
    EXPECT_EQ(cluster.quality->valid, cluster.quality->why.empty());
    EXPECT_TRUE(cluster.quality->figures.contains("step_spread"));
    EXPECT_TRUE(cluster.quality->fit_residual.has_value());
    EXPECT_EQ(result.disturbances.size(), 2U);
    ASSERT_EQ(result.steps.size(), 7U);
    EXPECT_EQ(result.steps.front().name, "ops of the step");
    EXPECT_EQ(result.steps.back().name, "contention");
  });
  EXPECT_THAT(
      told, ::testing::ElementsAre("ops of the step", "ops of " + two_buckets({}).policy, "copies",
                                   "host and launches", "collectives by size",
                                   "smaller groups, halves of all-reduces, sends", "contention"));
}

}  // namespace
}  // namespace dovetail::calibrate
