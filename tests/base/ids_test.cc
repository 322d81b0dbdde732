// Ids compare, hash and print as their number, and do not convert into each other.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/ids.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>
#include <unordered_set>

namespace dovetail {
namespace {

TEST(IdsTest, CompareAsTheirNumber) {
  EXPECT_EQ(OpId{3}, OpId{3});
  EXPECT_LT(OpId{-1}, OpId{3});
  EXPECT_GT(Rank{10}, Rank{9});
}

TEST(IdsTest, PrintAsTheirNumber) {
  std::ostringstream out;
  out << BucketId{17} << ' ' << Rank{-1};
  EXPECT_EQ(out.str(), "17 -1");
}

TEST(IdsTest, ServeAsHashKeys) {
  std::unordered_set<TensorId> ids;
  for (int i = 0; i < 100; ++i) ids.insert(TensorId{i % 10});
  EXPECT_EQ(ids.size(), 10U);
  EXPECT_TRUE(ids.contains(TensorId{9}));
  EXPECT_FALSE(ids.contains(TensorId{10}));
}

TEST(IdsTest, OfDifferentThingsDoNotMix) {
  EXPECT_FALSE((std::is_convertible_v<OpId, BucketId>));
  EXPECT_FALSE((std::is_constructible_v<OpId, BucketId>));
  EXPECT_FALSE((std::is_convertible_v<int, OpId>));
}

}  // namespace
}  // namespace dovetail
