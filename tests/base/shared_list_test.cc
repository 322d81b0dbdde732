// A list that copies share is a value: what is done to one copy leaves the others alone.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/shared_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace dovetail {
namespace {

TEST(SharedListTest, CopiesShareUntilOneIsEdited) {
  const SharedList<int> first = {1, 2};
  SharedList<int> second = first;
  EXPECT_TRUE(second.shares(first));
  second.edit().push_back(3);
  EXPECT_FALSE(second.shares(first));
  EXPECT_EQ(first.copy(), (std::vector<int>{1, 2}));
  EXPECT_EQ(second.copy(), (std::vector<int>{1, 2, 3}));
  const int* const place = second.begin();
  second.edit().front() = 7;  // nobody shares it
  EXPECT_EQ(second.begin(), place);
  EXPECT_EQ(second.front(), 7);
}

TEST(SharedListTest, IsComparedByWhatItHolds) {
  EXPECT_EQ((SharedList<int>{1, 2}), SharedList<int>(std::vector<int>{1, 2}));
  EXPECT_NE((SharedList<int>{1, 2}), (SharedList<int>{1}));
  EXPECT_EQ(SharedList<int>(), SharedList<int>(std::vector<int>{}));
  EXPECT_TRUE(SharedList<int>().empty());
}

}  // namespace
}  // namespace dovetail
