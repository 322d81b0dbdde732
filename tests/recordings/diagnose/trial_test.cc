// How many steps must be run with and without a bucket setting before its gain shows: more for a smaller gain, more where steps stray.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/trial.h"

#include <gtest/gtest.h>

namespace dovetail::diagnose {
namespace {

TEST(TrialTest, StepsGrowWithTheSquareOfTheSpreadOverTheGain) {
  // Standard deviation 2 ms.
  const std::vector<Duration> steps = {from_us(98'000), from_us(100'000), from_us(102'000)};
  // 2 * 7.84 * (2 / 1)^2
  EXPECT_EQ(steps_to_see(from_us(1'000), steps), 63);
  EXPECT_EQ(steps_to_see(from_us(2'000), steps), 16);
  EXPECT_EQ(steps_to_see(from_us(50'000), steps), 2);
}

TEST(TrialTest, TwoStepsDoNotTellASpread) {
  EXPECT_EQ(steps_to_see(from_us(1'000), {from_us(98'000), from_us(102'000)}), std::nullopt);
  const std::vector<Duration> steps = {from_us(1), from_us(2), from_us(3)};
  EXPECT_EQ(steps_to_see(Duration{}, steps), std::nullopt);
}

}  // namespace
}  // namespace dovetail::diagnose
