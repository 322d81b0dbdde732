// Indexed vectors are reached by their own kind of id only; the median is a value of the sample.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/indexed.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "base/ids.h"
#include "base/statistics.h"

namespace dovetail {
namespace {

enum class Fruit { Apple, Pear };

template <class Container, class Index>
concept IsIndexedBy = requires(Container container, Index index) {
  container[index];
};

TEST(IndexedTest, FindsWhatItAppendedUnderTheIdThatItReturned) {
  Indexed<OpId, std::string> names;
  EXPECT_EQ(names.end_index(), OpId{0});
  EXPECT_EQ(names.push_back("forward"), OpId{0});
  EXPECT_EQ(names.push_back("backward"), OpId{1});
  EXPECT_EQ(names[OpId{1}], "backward");
  EXPECT_TRUE(names.contains(OpId{1}));
  EXPECT_FALSE(names.contains(OpId{2}));
}

TEST(IndexedTest, TakesNoOtherIndexThanItsOwn) {
  using ByOp = Indexed<OpId, int>;
  EXPECT_TRUE((IsIndexedBy<ByOp, OpId>));
  EXPECT_FALSE((IsIndexedBy<ByOp, BucketId>));
  EXPECT_FALSE((IsIndexedBy<ByOp, int>));
}

TEST(IndexedTest, TakesEnumeratorsAndWholeNumbers) {
  Indexed<Fruit, int> prices(2, 10);
  prices[Fruit::Pear] = 12;
  EXPECT_EQ(prices, (Indexed<Fruit, int>{10, 12}));
  const Indexed<std::int32_t, int> squares = {0, 1, 4};
  EXPECT_EQ(squares[2], 4);
}

TEST(StatisticsTest, TheMedianIsAValueOfTheSampleAndTheUpperOneOfTwo) {
  EXPECT_EQ(median(std::vector{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector{4, 1, 3, 2}), 3);
  EXPECT_EQ(median_or(std::vector<int>{}, 7), 7);
}

// c_2 = 1/sqrt(pi) = 0.5642, c_3 = 3/(2 sqrt(pi)) = 0.8463; larger ones from tables of normal order
// statistics.
TEST(StatisticsTest, TheExpectedMaximumOfNormalValuesIsThatOfTheTables) {
  EXPECT_EQ(expected_maximum(1), 0);
  EXPECT_NEAR(expected_maximum(2), 0.5642, 1e-4);
  EXPECT_NEAR(expected_maximum(3), 0.8463, 1e-4);
  EXPECT_NEAR(expected_maximum(8), 1.4236, 1e-4);
  EXPECT_NEAR(expected_maximum(64), 2.3437, 1e-3);
}

}  // namespace
}  // namespace dovetail
