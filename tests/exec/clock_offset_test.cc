// Clocks of several hosts: how far they are apart, and timings on one of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/clock_offset.h"

#include "exec/clock.h"
#include "exec/cpu/job.h"
#include "exec/fake/fake_backend.h"
#include "exec/launch/local_ranks.h"
#include "exec/measure.h"
#include "tests/exec/ahead.h"
#include "tests/exec/programs.h"
#include "traces/metrics.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>

namespace dovetail::exec {
namespace {

constexpr std::int64_t kDay = 86'400'000'000'000;

// Rank r's host booted r days before rank 0's.
Exchange on_hosts_of_their_own(launch::Session& session) {
  Exchange exchange = cpu::exchange_of(session);
  const std::int64_t ahead = session.rank().value * kDay;
  exchange.clock_id = "host " + std::to_string(session.rank().value);
  exchange.clock = [ahead] { return now_ns() + ahead; };
  return exchange;
}

TEST(ClockOffsetTest, LiesWithinItsError) {
  launch::run_local_ranks({.ranks = 3}, [](launch::Session& session) {
    const ClockOffset found = clock_offset(on_hosts_of_their_own(session));
    const std::int64_t apart = found.offset_ns + session.rank().value * kDay;
    EXPECT_LE(std::abs(apart), found.error_ns);
    EXPECT_EQ(found.error_ns > 0, session.rank() != Rank{0});
  });
}

TEST(ClockOffsetTest, RanksOfOneClockHaveNone) {
  launch::run_local_ranks({.ranks = 3}, [](launch::Session& session) {
    const ClockOffset found = clock_offset(cpu::exchange_of(session));
    EXPECT_EQ(found.offset_ns, 0);
    EXPECT_EQ(found.error_ns, 0);
  });
}

// 10 ns apart at 100, 30 at 200: 20 at 150, and on along the line.
TEST(ClockOffsetTest, DriftIsInterpolated) {
  const ClockOffset before = {.at_ns = 100, .offset_ns = 10};
  const ClockOffset after = {.at_ns = 200, .offset_ns = 30};
  EXPECT_EQ(offset_at(before, after, 100), 10);
  EXPECT_EQ(offset_at(before, after, 150), 20);
  EXPECT_EQ(offset_at(before, after, 250), 40);
  EXPECT_EQ(offset_at(before, before, 150), 10);
}

// Steps of 10 us or so on clocks that are days apart. Before, the step was said to take two days.
TEST(ClockOffsetTest, AStepOfSeveralHostsTakesNoDays) {
  const schedule::ScheduledProgram plan = testing::in_two_buckets(3);
  launch::run_local_ranks({.ranks = 3}, [&plan](launch::Session& session) {
    const Exchange exchange = on_hosts_of_their_own(session);
    testing::Ahead backend(
        std::make_unique<fake::FakeBackend>(fake::Durations{
            .duration = [](const schedule::Command&) { return Duration(1000); }, .issue = {}}),
        session.rank().value * kDay);
    const Lane lane = {.plan = &plan, .backend = &backend};
    const Measured measured = measure(exchange, std::span(&lane, 1), {.warmup = 0, .steps = 2}, {});
    if (session.rank() != Rank{0}) return;
    EXPECT_GT(measured.clock_error, Duration{});
    for (const Duration step : traces::step_times(measured.traces[0])) {
      EXPECT_LT(step, std::chrono::hours(1));
    }
    EXPECT_EQ(measured.traces[0].provenance.notes.count("clocks of the hosts"), 1U);
  });
}

}  // namespace
}  // namespace dovetail::exec
