// Sums over the absences of a core.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/disturbances.h"

#include <gtest/gtest.h>

namespace dovetail::traces {
namespace {

Duration ms(std::int64_t n) { return std::chrono::milliseconds(n); }

// ....####......########..  a column is 1 ms
CoreRecord record() {
  return {.core = 0,
          .watched = ms(24),
          .taken = {{.start = ms(4), .length = ms(4)}, {.start = ms(14), .length = ms(8)}},
          .slowdown = 0.25,
          .quickest = Duration(10)};
}

TEST(DisturbancesTest, TheShareIsTakenTimeOverWatchedTime) {
  EXPECT_DOUBLE_EQ(share_taken(record()), 0.5);
  EXPECT_EQ(share_taken(CoreRecord{}), 0);
  CoreRecord with_unseen = record();
  with_unseen.unseen = 0.125;
  EXPECT_DOUBLE_EQ(share_taken(with_unseen), 0.625);
}

TEST(DisturbancesTest, TheTypicalBurstHoldsTheMedianOfTheTakenTime) {
  // Expectation: of 12 ms taken, 4 belong to the short burst and 8 to the long one.
  EXPECT_EQ(typical_burst(record()), ms(8));
  EXPECT_EQ(typical_burst(CoreRecord{}), Duration{});
}

TEST(DisturbancesTest, CountsOnlyWhatLiesWithin) {
  EXPECT_EQ(taken_within(record(), ms(0), ms(4)), ms(0));
  EXPECT_EQ(taken_within(record(), ms(6), ms(15)), ms(3));
  EXPECT_EQ(taken_within(record(), ms(0), ms(24)), ms(12));
}

// Rank 0 is away from 4 to 8 ms and catches up until 12; rank 1 from 11 to 12 ms; both with 0.5 ms of margin, so
// that they are one. Then rank 1 for 50 ms, of which at most 30 count again; cut to what was watched.
TEST(DisturbancesTest, RestlessIsTheTimeOfAbsencesAndOfCatchingUp) {
  CoreRecord first;
  first.watched = ms(170);
  first.taken = {{.start = ms(4), .length = ms(4)}};
  CoreRecord second = first;
  second.taken = {{.start = ms(11), .length = ms(1)},
                  {.start = ms(40), .length = ms(50)},
                  {.start = ms(165), .length = ms(4)}};
  const Duration half = std::chrono::microseconds(500);
  const std::vector<Taken> expected = {{.start = ms(4) - half, .length = ms(9) + 2 * half},
                                       {.start = ms(40) - half, .length = ms(80) + 2 * half},
                                       {.start = ms(165) - half, .length = ms(5) + half}};
  EXPECT_EQ(restless({first, second}).taken, expected);
  EXPECT_TRUE(restless({}).taken.empty());
}

TEST(DisturbancesTest, AWindowCutsBurstsAndCountsFromItsOwnStart) {
  const CoreRecord window = window_of(record(), ms(6), ms(16));
  EXPECT_EQ(window.watched, ms(10));
  const std::vector<Taken> expected = {{.start = ms(0), .length = ms(2)},
                                       {.start = ms(8), .length = ms(2)}};
  EXPECT_EQ(window.taken, expected);
  EXPECT_EQ(window.slowdown, 0.25);
  EXPECT_EQ(window.quickest, Duration(10));
  EXPECT_EQ(window.unseen, 0.0);
}

}  // namespace
}  // namespace dovetail::traces
