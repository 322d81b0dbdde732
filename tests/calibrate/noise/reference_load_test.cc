// The reference load in virtual time: what its moments say about preemptions that are known.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "calibrate/noise/preemption_sampling.h"
#include "tests/calibrate/noise/fake_preemptions.h"
#include "traces/disturbances.h"

namespace dovetail::testbed {
namespace {

using testing::bursts;
using testing::ticks_of;
using traces::Taken;

constexpr std::int64_t kMs = 1'000'000;

TEST(ReferenceLoadTest, EstimatesTheShareTakenWithinThreePoints) {
  const std::int64_t end_ns = 60'000 * kMs;
  for (const double share : {0.0, 0.02, 0.1, 0.3, 0.5}) {
    for (const int burst_ms : {1, 2, 5, 10, 50, 200}) {
      SCOPED_TRACE(std::to_string(share) + " in bursts of " + std::to_string(burst_ms) + " ms");
      const std::vector<Taken> away = bursts(share, std::chrono::milliseconds(burst_ms), 7);
      const traces::CoreRecord record = record_of(ticks_of(away, end_ns, 8), 0, end_ns);
      EXPECT_NEAR(traces::share_taken(record), share, 0.03);
      if (share > 0 && burst_ms >= 10) {
        // Of few preemptions nothing is learnt: then each is known to half a cell, else to a millisecond.
        const double within_us = record.taken.size() < 20 ? to_us(kLongCell) / 2 : 1000;
        EXPECT_NEAR(to_us(traces::typical_burst(record)), 1000.0 * burst_ms, within_us);
      }
    }
  }
}

TEST(ReferenceLoadTest, LooksSeldomWhereTheCoreIsSeldomAway) {
  const std::int64_t end_ns = 60'000 * kMs;
  // Expectation: a second of cells of 4 ms until it is known that nothing happens, then 16 ms: about 3,900
  // moments in a minute. Where the core is away for 10 %, 4 ms throughout, of which preemptions swallow some.
  const std::size_t quiet = ticks_of({}, end_ns, 8).size();
  EXPECT_GT(quiet, 3'700U);
  EXPECT_LT(quiet, 4'600U);
  for (const int burst_ms : {5, 50}) {
    const std::vector<Taken> away = bursts(0.1, std::chrono::milliseconds(burst_ms), 7);
    const std::size_t moments = ticks_of(away, end_ns, 8).size();
    EXPECT_GT(moments, 12'500U);
    EXPECT_LT(moments, 15'000U);
  }
}

// Bursts of 5 ms, 10 % of a minute, where looking takes 10 us, 27 us or a millisecond.
TEST(ReferenceLoadTest, LooksNoOftenerThanItMayCost) {
  const std::int64_t end_ns = 60'000 * kMs;
  const std::vector<Taken> away = bursts(0.1, std::chrono::milliseconds(5), 7);
  const std::size_t freely = ticks_of(away, end_ns, 8).size();
  const std::size_t cheap = ticks_of(away, end_ns, 8, 10'000).size();
  const std::size_t dear = ticks_of(away, end_ns, 8, 27'000).size();
  const std::size_t dearest = ticks_of(away, end_ns, 8, kMs).size();
  // Expectation: 10 us in each 4 ms are 0.25 %; 27 us want cells of 6 ms, a millisecond would want more than
  // the longest ones.
  EXPECT_EQ(cheap, freely);
  EXPECT_LE(static_cast<double>(dear) * 27'000, kMostCost * static_cast<double>(end_ns));
  EXPECT_GT(dear, 8'000U);
  EXPECT_NEAR(static_cast<double>(dearest), 60'000.0 / 16, 300);
  // What it finds is as right as before.
  const traces::CoreRecord record = record_of(ticks_of(away, end_ns, 8, 27'000), 0, end_ns);
  EXPECT_NEAR(traces::share_taken(record), 0.1, 0.01);
}

// The estimate weighs each moment with its cell, so changing cells do not bias it: over many seeds the mean
// comes as near to the share as chance allows.
TEST(ReferenceLoadTest, TheShareIsUnbiasedAlsoWhereCellsChange) {
  const std::int64_t end_ns = 20'000 * kMs;
  // Away for 1 ms in 25 on average: the cells go back and forth.
  const std::vector<Taken> away = bursts(0.04, std::chrono::milliseconds(1), 7);
  const auto within = std::count_if(
      away.begin(), away.end(), [](const Taken& taken) { return taken.start.count() < end_ns; });
  const double share = static_cast<double>(within) * 1e6 / static_cast<double>(end_ns);
  double mean = 0;
  constexpr int kSeeds = 40;
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  std::size_t most = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto ticks = ticks_of(away, end_ns, static_cast<std::uint64_t>(seed));
    double away_ns = 0;
    for (const Tick& tick : ticks) {
      if (tick.woke_ns - tick.due_ns > kOnTime.count()) {
        away_ns += static_cast<double>(tick.cell_ns + tick.passed_ns);
      }
    }
    mean += away_ns / static_cast<double>(end_ns) / kSeeds;
    fewest = std::min(fewest, ticks.size());
    most = std::max(most, ticks.size());
  }
  EXPECT_GT(most, fewest + 100);  // the cells did change
  // A moment within the last kOnTime of a preemption is in time: 0.85 of the share are seen. One seed has a
  // standard error of about 0.004, forty have 0.0007.
  EXPECT_NEAR(mean, 0.85 * share, 0.002);
}

TEST(ReferenceLoadTest, LengthsAreLearntFromAllPreemptionsTogether) {
  // Expectation: of bursts of 5 ms a moment tells what was left, and that all are 5 ms long only their
  // distribution tells; the middle of the gap would be off by 1 ms on average, and by 2 at times.
  const std::int64_t end_ns = 30'000 * kMs;
  const std::vector<Taken> away = bursts(0.2, std::chrono::milliseconds(5), 7);
  const traces::CoreRecord record = record_of(ticks_of(away, end_ns, 8), 0, end_ns);
  ASSERT_GT(record.taken.size(), 500U);
  double error_ns = 0;
  for (const Taken& taken : record.taken) {
    error_ns += std::abs(static_cast<double>(taken.length.count()) - 5e6);
  }
  EXPECT_LT(error_ns / static_cast<double>(record.taken.size()), 0.4e6);
}

TEST(ReferenceLoadTest, WhatLiesBetweenMomentsIsUnseenButCounted) {
  const std::int64_t end_ns = 60'000 * kMs;
  const std::vector<Taken> away = bursts(0.1, std::chrono::milliseconds(1), 7);
  const traces::CoreRecord record = record_of(ticks_of(away, end_ns, 8), 0, end_ns);
  // Expectation: of bursts of 1 ms a moment in each 4 ms meets a quarter.
  EXPECT_NEAR(record.unseen, 0.075, 0.02);
  EXPECT_NEAR(traces::share_taken(record), 0.1, 0.01);
}

TEST(ReferenceLoadTest, CountsWaitsInTheRunQueueOnce) {
  // Expectation: a wake-up 3 ms late, and 4 ms in the run queue meanwhile: the core was away for 4 ms, not
  // for 7. At 20 ms another program had it for 2 ms without delaying the reference load; a wait of 0.3 ms is our
  // own communication thread.
  const std::vector<Tick> ticks = {{.due_ns = 2 * kMs, .woke_ns = 2 * kMs},
                                   {.due_ns = 7 * kMs, .woke_ns = 10 * kMs, .waited_ns = 4 * kMs},
                                   {.due_ns = 16 * kMs, .woke_ns = 16 * kMs, .waited_ns = 300'000},
                                   {.due_ns = 20 * kMs, .woke_ns = 20 * kMs, .waited_ns = 2 * kMs},
                                   {.due_ns = 24 * kMs, .woke_ns = 24 * kMs}};
  const traces::CoreRecord record = record_of(ticks, 0, 30 * kMs);
  const std::vector<Taken> expected = {
      {.start = std::chrono::milliseconds(6), .length = std::chrono::milliseconds(4)},
      {.start = std::chrono::milliseconds(18), .length = std::chrono::milliseconds(2)}};
  EXPECT_EQ(record.taken, expected);
}

// The wait of a thread that stood in the queue through every preemption, or through one `of_each`: told at
// the first moment after it, for the reference load goes before the thread.
std::vector<Tick> with_waits(std::vector<Tick> ticks, const std::vector<Taken>& away, int of_each) {
  auto tick = ticks.begin();
  for (std::size_t i = 0; i < away.size(); ++i) {
    const std::int64_t end_ns = (away[i].start + away[i].length).count();
    while (tick != ticks.end() && tick->due_ns <= end_ns) ++tick;
    if (tick == ticks.end()) break;
    if (static_cast<int>(i) % of_each == 0) tick->waited_ns += away[i].length.count();
  }
  return ticks;
}

TEST(ReferenceLoadTest, AWaitBelongsToThePreemptionThatTheMomentBeforeMet) {
  const std::int64_t end_ns = 60'000 * kMs;
  for (const double share : {0.1, 0.3}) {
    for (const int burst_ms : {2, 5, 50}) {
      // A thread that always waited, and one that was asleep in every second or third preemption.
      for (const int of_each : {1, 2, 3}) {
        SCOPED_TRACE(std::to_string(share) + " in bursts of " + std::to_string(burst_ms) +
                     " ms, one wait of " + std::to_string(of_each));
        const std::vector<Taken> away = bursts(share, std::chrono::milliseconds(burst_ms), 7);
        const traces::CoreRecord record =
            record_of(with_waits(ticks_of(away, end_ns, 8), away, of_each), 0, end_ns);
        EXPECT_NEAR(traces::share_taken(record), share, 0.02);
        EXPECT_NEAR(to_us(traces::typical_burst(record)), 1000.0 * burst_ms, 500);
      }
    }
  }
}

TEST(ReferenceLoadTest, CountsAWaitThatIsToldAtTheNextMomentOnce) {
  // Expectation: found away at 7 ms until 10, and then 4.5 ms in the run queue: away from 5.5 on. At 20 ms found
  // away again; its wait of 1 ms is shorter than what was left of the preemption, so the thread came late to it:
  // as long again as was left, at most half the gap of 6 ms, and nothing of its own for the moment after.
  const std::vector<Tick> ticks = {
      {.due_ns = 2 * kMs, .woke_ns = 2 * kMs},
      {.due_ns = 7 * kMs, .woke_ns = 10 * kMs},
      {.due_ns = 14 * kMs, .woke_ns = 14 * kMs, .waited_ns = 9 * kMs / 2},
      {.due_ns = 20 * kMs, .woke_ns = 22 * kMs},
      {.due_ns = 25 * kMs, .woke_ns = 25 * kMs, .waited_ns = kMs}};
  const traces::CoreRecord record = record_of(ticks, 0, 30 * kMs);
  const std::vector<Taken> expected = {
      {.start = std::chrono::microseconds(5'500), .length = std::chrono::microseconds(4'500)},
      {.start = std::chrono::milliseconds(18), .length = std::chrono::milliseconds(4)}};
  EXPECT_EQ(record.taken, expected);
}

}  // namespace
}  // namespace dovetail::testbed
