// Tests of traces/intervals.h.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/intervals.h"

#include "base/random.h"
#include "tests/traces/sample.h"

#include <gtest/gtest.h>

#include <array>

namespace dovetail::traces {
namespace {

using sample::at;
using sample::us;

Interval interval(std::int64_t from, std::int64_t to) { return {at(from), at(to)}; }

TEST(IntervalsTest, UnitesOverlappingAndTouchingIntervals) {
  // Expectation: 0..10 and 5..12 overlap, 12..15 touches them, 20..30 stands alone and
  // holds 22..25.
  const auto result = union_of(
      {interval(20, 30), interval(0, 10), interval(22, 25), interval(5, 12), interval(12, 15)});
  EXPECT_EQ(result, (std::vector<Interval>{interval(0, 15), interval(20, 30)}));
  EXPECT_EQ(length(result), us(25));
}

TEST(IntervalsTest, ForgetsEmptyIntervals) {
  EXPECT_TRUE(union_of({interval(5, 5), interval(7, 7)}).empty());
}

TEST(IntervalsTest, MeasuresWhatIsNotCovered) {
  // Expectation: of 8..25 the cover takes 8..12 and 20..25, which leaves 12..20.
  const std::vector<Interval> cover = {interval(0, 12), interval(20, 30)};
  EXPECT_EQ(uncovered(interval(8, 25), cover), us(8));
  EXPECT_EQ(uncovered(interval(12, 20), cover), us(8));
  EXPECT_EQ(uncovered(interval(22, 28), cover), us(0));
  EXPECT_EQ(uncovered(interval(40, 45), cover), us(5));
  EXPECT_EQ(uncovered(interval(9, 9), cover), us(0));
  EXPECT_EQ(uncovered(interval(3, 4), std::vector<Interval>{}), us(1));
}

TEST(IntervalsTest, AgreesWithCountingMicrosecondByMicrosecond) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::array<std::vector<Interval>, 2> sets;
    std::array<std::array<bool, 64>, 2> marks{};
    for (std::size_t set = 0; set < 2; ++set) {
      for (std::int64_t n = random.between(0, 8); n > 0; --n) {
        const std::int64_t from = random.between(0, 63);
        const std::int64_t to = random.between(from, std::min<std::int64_t>(from + 12, 64));
        sets[set].push_back(interval(from, to));
        for (std::int64_t i = from; i < to; ++i) marks[set][static_cast<std::size_t>(i)] = true;
      }
      sets[set] = union_of(std::move(sets[set]));
    }
    std::int64_t covered = 0;
    std::int64_t alone = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      covered += marks[0][i] ? 1 : 0;
      alone += marks[0][i] && !marks[1][i] ? 1 : 0;
    }
    EXPECT_EQ(length(sets[0]), us(covered));
    EXPECT_EQ(uncovered(sets[0], sets[1]), us(alone));
    const std::vector<Interval> parts = without(sets[0], sets[1]);
    EXPECT_EQ(length(parts), us(alone));
    EXPECT_EQ(uncovered(parts, sets[0]), us(0));
    EXPECT_EQ(parts, union_of(parts));
  }
}

}  // namespace
}  // namespace dovetail::traces
