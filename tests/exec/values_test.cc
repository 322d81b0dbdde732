// The known values of gradients, and every kind of corruption that they must reveal.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/combination.h"

#include "schedule/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace dovetail::exec::values {
namespace {

using schedule::ReduceOp;

constexpr TensorId kGradient{7};
constexpr std::int32_t kStep = 3;
constexpr std::size_t kCount = 2000;  // seven whole blocks and a part of one

std::vector<Rank> first_ranks(std::int32_t count) {
  std::vector<Rank> all;
  for (std::int32_t i = 0; i < count; ++i) all.push_back(Rank{i});
  return all;
}

std::vector<float> local(const Write& write, std::size_t count = kCount) {
  std::vector<float> data(count);
  fill(write, data);
  return data;
}

// Adds up in double precision, by itself.
std::vector<float> reduced(std::int32_t world, ReduceOp op, TensorId gradient = kGradient,
                           std::int32_t step = kStep) {
  std::vector<double> sum(kCount, 0.0);
  for (const Rank rank : first_ranks(world)) {
    const std::vector<float> data = local({.tensor = gradient, .step = step, .rank = rank});
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += static_cast<double>(data[i]);
  }
  std::vector<float> result(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto exact = static_cast<float>(sum[i]);
    result[i] = op == ReduceOp::Average ? exact * (1.0F / static_cast<float>(world)) : exact;
  }
  return result;
}

// The reduced gradient as a formula.
Combination expected(std::int32_t world, ReduceOp op, TensorId gradient = kGradient) {
  const double factor = op == ReduceOp::Average ? 1.0 / world : 1.0;
  const Term term = {.tensor = gradient, .factor = factor, .ranks = first_ranks(world)};
  return {std::span(&term, 1), kStep};
}

std::int64_t wrong(const std::vector<float>& data, std::int32_t world = 2,
                   ReduceOp op = ReduceOp::Sum) {
  return expected(world, op).compare(data).wrong;
}

TEST(ValuesTest, AreSmallIntegersSoThatSumsAreExact) {
  for (const float value : local({.tensor = kGradient, .step = kStep, .rank = Rank{1}})) {
    EXPECT_EQ(value, std::round(value));
    EXPECT_GE(value, -2048.0F);
    EXPECT_LE(value, 2047.0F + 2047.0F);
  }
  // The largest sum over kMostRanks ranks, 4096 * 4094, is still below 2^24, where fp32 counts
  // by 1.
  EXPECT_LT(static_cast<double>(kMostRanks) * 4094.0, 0x1p24);
}

TEST(ValuesTest, ACorrectReductionHasNoWrongElement) {
  for (const std::int32_t world : {1, 2, 3, 4, 7, 64}) {
    for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average}) {
      EXPECT_EQ(wrong(reduced(world, op), world, op), 0) << "world " << world;
    }
  }
}

TEST(ValuesTest, TheAverageOfAPowerOfTwoRanksIsExact) {
  // Hand calculation: averages of integers over 4 ranks are multiples of 1/4.
  for (const float value : reduced(4, ReduceOp::Average)) {
    EXPECT_EQ(value * 4.0F, std::round(value * 4.0F));
  }
}

TEST(ValuesTest, AnySizeCanBeFilledAndChecked) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 255U, 256U, 257U, 511U, 512U, 513U}) {
    const std::vector<float> data =
        local({.tensor = kGradient, .step = kStep, .rank = Rank{0}}, count);
    EXPECT_EQ(expected(1, ReduceOp::Sum).compare(data).wrong, 0) << count;
  }
}

TEST(ValuesTest, OneWrongElementIsCountedAndFound) {
  for (const std::size_t place : {std::size_t{0}, std::size_t{255}, std::size_t{256}, kCount - 1}) {
    std::vector<float> data = reduced(2, ReduceOp::Sum);
    data[place] += 1.0F;
    const Combination sum = expected(2, ReduceOp::Sum);
    const Difference difference = sum.compare(data);
    EXPECT_EQ(difference.wrong, 1);
    EXPECT_EQ(difference.first, place);
    EXPECT_EQ(sum.at(place), data[place] - 1.0F);
  }
}

TEST(ValuesTest, NotANumberIsWrong) {
  std::vector<float> data = reduced(2, ReduceOp::Sum);
  data[11] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(wrong(data), 1);
}

// Corrupt data may agree by chance in one element of about 4000, so most must differ, not all.
void expect_mostly_wrong(const std::vector<float>& data, const char* kind) {
  EXPECT_GT(wrong(data), static_cast<std::int64_t>(kCount * 99 / 100)) << kind;
}

TEST(ValuesTest, UnreducedDataIsWrong) {
  expect_mostly_wrong(local({.tensor = kGradient, .step = kStep, .rank = Rank{0}}), "rank 0");
  expect_mostly_wrong(local({.tensor = kGradient, .step = kStep, .rank = Rank{1}}), "rank 1");
}

TEST(ValuesTest, TwiceReducedDataIsWrong) {
  std::vector<float> data = reduced(2, ReduceOp::Sum);
  for (float& value : data) value *= 2.0F;  // both ranks hold the sum and add again
  expect_mostly_wrong(data, "reduced twice");
}

TEST(ValuesTest, DataOfAnotherStepIsWrong) {
  expect_mostly_wrong(reduced(2, ReduceOp::Sum, kGradient, kStep - 1), "the step before");
}

TEST(ValuesTest, DataOfAnotherGradientIsWrong) {
  expect_mostly_wrong(reduced(2, ReduceOp::Sum, TensorId{8}), "swapped");
}

TEST(ValuesTest, AnAverageInPlaceOfASumIsWrong) {
  expect_mostly_wrong(reduced(2, ReduceOp::Average), "average");
}

TEST(ValuesTest, OneRankMissingOrCountedTwiceIsWrong) {
  const std::vector<float> one = local({.tensor = kGradient, .step = kStep, .rank = Rank{1}});
  std::vector<float> twice = one;
  for (float& value : twice) value *= 2.0F;
  expect_mostly_wrong(twice, "rank 1 in place of rank 0");
}

TEST(ValuesTest, ShiftedDataIsWrongAlsoByWholeBlocks) {
  for (const std::size_t shift : {std::size_t{1}, std::size_t{4}, kPeriod, 2 * kPeriod}) {
    std::vector<float> data = reduced(2, ReduceOp::Sum);
    std::rotate(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(shift), data.end());
    expect_mostly_wrong(data, "shifted");
  }
}

TEST(ValuesTest, AnEarlierWriteIsNotTheLast) {
  std::vector<float> data =
      local({.tensor = kGradient, .step = kStep, .rank = Rank{0}, .writes_left = 1});
  const std::vector<float> other =
      local({.tensor = kGradient, .step = kStep, .rank = Rank{1}, .writes_left = 1});
  for (std::size_t i = 0; i < kCount; ++i) data[i] += other[i];
  expect_mostly_wrong(data, "launched before the last write");
}

TEST(ValuesTest, AnotherMicroStepIsAnotherValue) {
  expect_mostly_wrong(local({.tensor = kGradient, .step = kStep, .rank = Rank{0}, .micro_step = 1}),
                      "another micro-step");
}

// Two micro-steps on two ranks, averaged over both: a quarter of four writes, exact in fp32.
TEST(ValuesTest, ACombinationOfMicroStepsIsExact) {
  std::vector<float> sum(kCount, 0.0F);
  std::vector<Term> terms;
  for (const std::int32_t micro_step : {0, 1}) {
    for (const Rank rank : first_ranks(2)) {
      const std::vector<float> data = local({.tensor = kGradient,
                                             .step = kStep,
                                             .rank = rank,
                                             .micro_step = micro_step,
                                             .factor = 0.25F});
      for (std::size_t i = 0; i < kCount; ++i) sum[i] += data[i];
    }
    terms.push_back(
        {.tensor = kGradient, .micro_step = micro_step, .factor = 0.25, .ranks = first_ranks(2)});
  }
  const Combination expected(terms, kStep);
  EXPECT_EQ(expected.compare(sum).wrong, 0);
  // A shard is compared at its place.
  EXPECT_EQ(expected.compare(std::span(sum).subspan(700, 900), 700).wrong, 0);
  EXPECT_GT(expected.compare(std::span(sum).subspan(700, 900), 701).wrong, 800);
  // One micro-step missing.
  EXPECT_GT(Combination(std::span(terms).first(1), kStep).compare(sum).wrong,
            static_cast<std::int64_t>(kCount * 9 / 10));
}

// A third of a sum rounds; a tenth of an element does not pass for rounding.
TEST(ValuesTest, AveragesOverThreeRanksMayRound) {
  std::vector<float> data = reduced(3, ReduceOp::Average);
  EXPECT_EQ(wrong(data, 3, ReduceOp::Average), 0);
  data[5] += 0.1F;
  EXPECT_EQ(wrong(data, 3, ReduceOp::Average), 1);
}

}  // namespace
}  // namespace dovetail::exec::values
