// Processor time, and when a measurement may be believed.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/machine.h"

#include "base/error.h"
#include "tests/exec/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace dovetail::exec {
namespace {

using namespace std::chrono_literals;

TEST(MachineTest, ReadsTheFirstLineOfProcStat) {
  // user nice system idle iowait irq softirq steal guest guest_nice; 100 ticks a second: 10 ms
  // each.
  const CpuTimes times = parse_proc_stat("cpu  100 20 30 800 5 1 4 40 7 0\ncpu0 ...", 100);
  EXPECT_EQ(times.total, 10s);  // 1000 ticks; guest time is part of user
  EXPECT_EQ(times.programs, 1500ms);
  EXPECT_EQ(times.steal, 400ms);
  EXPECT_THROW(parse_proc_stat("cpu 1 2 3", 100), DeviceError);
  EXPECT_THROW(parse_proc_stat("cpu0 1 2 3 4 5 6 7 8", 100), DeviceError);
}

TEST(MachineTest, OutsideShareIsWhatOthersComputed) {
  // In 10 s of processor time programs used 4 s, of which we 3.7 s: others 3 %. Steal 0.2 s: 2 %.
  const CpuTimes before = {.total = 100s, .programs = 50s, .steal = 1s, .own = 20s};
  const CpuTimes after = {.total = 110s, .programs = 54s, .steal = 1200ms, .own = 23700ms};
  const Conditions conditions = conditions_between(before, after);
  EXPECT_DOUBLE_EQ(conditions.outside_cpu, 0.03);
  EXPECT_DOUBLE_EQ(conditions.steal, 0.02);
}

TEST(MachineTest, CoarseTicksNeverMakeANegativeShare) {
  const CpuTimes before = {.total = 1s, .programs = 1s, .steal = {}, .own = 1s};
  const CpuTimes after = {.total = 2s, .programs = 1100ms, .steal = {}, .own = 1105ms};
  EXPECT_EQ(conditions_between(before, after).outside_cpu, 0);
  EXPECT_EQ(conditions_between(before, before).outside_cpu, 0);
}

TEST(MachineTest, QuietConditionsAreValid) {
  const Verdict verdict = validity_of({.outside_cpu = 0.049,
                                       .steal = 0.009,
                                       .spread = 0.049,
                                       .core_taken = 0.019,
                                       .fit_residual = 0.019});
  EXPECT_TRUE(verdict.valid);
  EXPECT_TRUE(verdict.reasons.empty());
}

TEST(MachineTest, EveryBrokenLimitIsAReason) {
  const Verdict verdict = validity_of({.outside_cpu = 0.072,
                                       .steal = 0.02,
                                       .spread = 0.3,
                                       .core_taken = 0.112,
                                       .fit_residual = 0.05});
  EXPECT_FALSE(verdict.valid);
  EXPECT_THAT(
      verdict.reasons,
      ::testing::ElementsAre(
          "other programs used a share of the processors of 7.2 %, more than 5.0 %",
          "the hypervisor took a share of the processors of 2.0 %, more than 1.0 %",
          "the core of a rank was taken away for 11.2 %, more than 2.0 %",
          "step times spread from the 10th to the 90th percentile by 30.0 %, more than 5.0 %",
          "the link departs from a straight line by 5.0 %, more than 2.0 %"));
}

// In a container beside other tenants half of the host may be busy: what counts for ranks on devices is
// whether the threads that feed those waited for a core.
TEST(MachineTest, ADeviceJobIsJudgedByItsOwnWaitingAndNotByTheHost) {
  EXPECT_TRUE(validity_of({.outside_cpu = 0.5, .queue_wait = 0.009}).valid);
  EXPECT_THAT(validity_of({.outside_cpu = 0, .queue_wait = 0.02}).reasons,
              ::testing::ElementsAre(
                  "the threads that feed a device waited for a core for 2.0 %, more than 1.0 %"));
}

// Rank 1's process has waited for more than rank 0's: both hear of it.
TEST(MachineTest, TheProcessThatWaitedMostCounts) {
  const std::optional<Duration> now = run_queue_wait();
  if (!now) GTEST_SKIP() << "this kernel has no schedstat";
  Exchange pair = alone();
  pair.world_size = 2;
  pair.gather = [](const std::string& mine) {
    std::string more = mine;
    if (mine.size() == sizeof(std::int64_t)) {
      const std::int64_t waited = 50'000'000;
      std::memcpy(more.data(), &waited, sizeof waited);
    }
    return std::vector<std::string>{mine, more};
  };
  DeviceJobStart before;
  before.queue_wait = *now + std::chrono::hours(1);  // this process has waited for nothing since
  const Conditions conditions = conditions_of_device_job(pair, before, 1s);
  ASSERT_TRUE(conditions.queue_wait.has_value());
  EXPECT_DOUBLE_EQ(*conditions.queue_wait, 0.05);
}

TEST(MachineTest, WhatWasNotLookedAtIsNoReason) {
  EXPECT_TRUE(
      validity_of(
          {.outside_cpu = 0, .steal = 0, .spread = {}, .core_taken = {}, .fit_residual = {}})
          .valid);
}

TEST(MachineTest, AStraightLinkHasNoResidual) {
  // 8 ns per byte minus 100 us: every point lies on the line. The 4 KiB point is too small to
  // count.
  std::vector<SizedTime> points = {{kib(4), 500us}};
  for (const std::int64_t size : {128, 256, 512, 1024}) {
    points.push_back({kib(size), Duration(8 * size * 1024) - 100us});
  }
  const std::optional<double> residual = line_residual(points);
  ASSERT_TRUE(residual.has_value());
  EXPECT_NEAR(*residual, 0, 1e-9);
}

TEST(MachineTest, ABentLinkHasOne) {
  // 1, 2 and 4 ms at 1, 2 and 4 units of size would be straight. With 3 ms at the middle the best
  // line in relative error a + b x minimises (a+b-1)^2 + ((a+2b-3)/3)^2 + ((a+4b-4)/4)^2; the
  // middle point stays well above it.
  const std::vector<SizedTime> points = {{mib(1), 1ms}, {mib(2), 3ms}, {mib(4), 4ms}};
  const std::optional<double> residual = line_residual(points);
  ASSERT_TRUE(residual.has_value());
  EXPECT_GT(*residual, 0.1);
  EXPECT_LT(*residual, 0.5);
}

TEST(MachineTest, TwoPointsMakeNoResidual) {
  EXPECT_FALSE(line_residual({{mib(1), 1ms}, {mib(2), 3ms}}).has_value());
}

TEST(MachineTest, ThisMachineHasANameAndCores) {
  const MachineInfo info = this_machine();
  EXPECT_GE(info.cores, 1);
  EXPECT_FALSE(info.cpu.empty());
  EXPECT_THAT((MachineInfo{.host = "a", .cpu = "b", .cores = 1}.text()), "a, b, 1 core");
  EXPECT_THAT((MachineInfo{.host = "a", .cpu = "b", .cores = 2}.text()), "a, b, 2 cores");
}

TEST(MachineTest, RanksInOneProcessCountItsTimeOnce) {
  // Both ranks live in this process, which used 3.7 s of the programs' 4 s. Counted twice, nothing
  // would be left for others; counted once, 0.3 s of 10 s is 3 %.
  const CpuTimes before = {.total = 100s, .programs = 50s, .steal = 1s, .own = 20s};
  const CpuTimes after = {.total = 110s, .programs = 54s, .steal = 1s, .own = 23700ms};
  testing::ThreadRanks ranks(2);
  ranks.run([&](Rank rank) {
    const Conditions conditions = conditions_of_job(ranks.exchange(rank), before, after);
    EXPECT_DOUBLE_EQ(conditions.outside_cpu, 0.03);
  });
}

}  // namespace
}  // namespace dovetail::exec
