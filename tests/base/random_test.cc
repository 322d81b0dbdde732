// Seeded randomness: equal on every machine, within its bounds.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace dovetail {
namespace {

TEST(RandomTest, GivesThePublishedNumbersOfSplitmix64) {
  // The first outputs for seed 1234567 as listed for the authors' C code
  // (rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64).
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317ULL);
  EXPECT_EQ(random.next(), 3203168211198807973ULL);
  EXPECT_EQ(random.next(), 9817491932198370423ULL);
  EXPECT_EQ(random.next(), 4593380528125082431ULL);
  EXPECT_EQ(random.next(), 16408922859458223821ULL);
}

TEST(RandomTest, TheSameSeedGivesTheSameNumbers) {
  Random first(7);
  Random second(7);
  Random other(8);
  bool all_equal_to_other = true;
  for (int i = 0; i < 100; ++i) {
    const auto value = first.next();
    EXPECT_EQ(value, second.next());
    all_equal_to_other = all_equal_to_other && value == other.next();
  }
  EXPECT_FALSE(all_equal_to_other);
}

TEST(RandomTest, BetweenReachesBothEndsAndNothingBeyond) {
  Random random(1);
  std::array<int, 5> count{};
  for (int i = 0; i < 5000; ++i) {
    const auto value = random.between(-2, 2);
    ASSERT_GE(value, -2);
    ASSERT_LE(value, 2);
    ++count[static_cast<std::size_t>(value + 2)];
  }
  // 1000 expected each, standard deviation sqrt(5000 * 0.2 * 0.8) = 28: allow five of them.
  for (const int seen : count) EXPECT_NEAR(seen, 1000, 140);
}

TEST(RandomTest, BetweenTakesOneValueAndTheWholeRange) {
  Random random(1);
  EXPECT_EQ(random.between(5, 5), 5);
  bool negative = false;
  bool positive = false;
  for (int i = 0; i < 64; ++i) {
    const auto value = random.between(std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::int64_t>::max());
    negative = negative || value < 0;
    positive = positive || value > 0;
  }
  EXPECT_TRUE(negative);
  EXPECT_TRUE(positive);
}

TEST(RandomTest, UniformLiesInTheHalfOpenUnitInterval) {
  Random random(42);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = random.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
  }
  // Mean 0.5, standard deviation of the mean 0.2887 / 100.
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);
}

}  // namespace
}  // namespace dovetail
