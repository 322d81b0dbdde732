// Ranks that begin together. The clocks here are made: what is asserted is the order of their readings.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/common_start.h"

#include "exec/clock.h"
#include "exec/cpu/job.h"
#include "exec/launch/local_ranks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace dovetail::exec {
namespace {

constexpr std::int64_t kOneDay = 86'400'000'000'000;

// Keeps the last number that rank 0 told everybody.
Exchange overheard(Exchange inner, std::int64_t& last) {
  Exchange exchange = inner;
  exchange.broadcast = [inner, &last](const std::string& mine) {
    std::string all = inner.broadcast(mine);
    if (all.size() == sizeof last) std::memcpy(&last, all.data(), sizeof last);
    return all;
  };
  return exchange;
}

TEST(CommonStartTest, NobodyBeginsBeforeTheMomentThatRank0Named) {
  launch::run_local_ranks({.ranks = 3}, [](launch::Session& session) {
    std::int64_t moment = 0;
    CommonStart start(overheard(cpu::exchange_of(session), moment));
    for (int step = 0; step < 5; ++step) {
      const std::int64_t before = now_ns();
      start.await();
      const std::int64_t after = now_ns();
      EXPECT_GE(after, moment);
      if (session.rank() == Rank{0}) {
        EXPECT_GE(moment, before + 500'000);
      }
      EXPECT_LE(start.lateness().count(), after - moment);
    }
  });
}

// By its own clock a rank would wait for a day, or not at all.
TEST(CommonStartTest, TheMomentIsByTheClockOfRank0) {
  launch::run_local_ranks({.ranks = 3}, [](launch::Session& session) {
    Exchange exchange = cpu::exchange_of(session);
    const std::int64_t ahead = session.rank().value * kOneDay;
    exchange.clock_id = "host " + std::to_string(session.rank().value);
    exchange.clock = [ahead] { return now_ns() + ahead; };
    std::int64_t moment = 0;
    CommonStart start(overheard(exchange, moment));
    start.await();
    EXPECT_GE(now_ns(), moment - start.clock_error().count());
    EXPECT_EQ(start.clock_error() > Duration{}, session.rank() != Rank{0});
    EXPECT_LT(start.lateness(), std::chrono::hours(1));
  });
}

// The clock of a rank that does not wait would stand still here for ever, so nothing may be waited for.
TEST(CommonStartTest, ARankAloneBeginsAtOnce) {
  Exchange exchange = alone();
  exchange.clock = [] { return std::int64_t{0}; };
  CommonStart start(exchange);
  start.await();
  EXPECT_EQ(start.lateness(), Duration{});
}

}  // namespace
}  // namespace dovetail::exec
