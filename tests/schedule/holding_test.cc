// What a rank holds, added up and told, and the three answers to whether it fits.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/holding.h"

#include <gtest/gtest.h>

namespace dovetail::schedule {
namespace {

TEST(HoldingTest, IsToldKindByKindTheLargestFirst) {
  EXPECT_EQ(describe({.parameters = mib(1), .copies = mib(2), .fragmentation = mib(1)}),
            "copies in buckets 2 MiB, parameters 1 MiB, fragmentation 1 MiB");
  EXPECT_EQ(describe({}), "");
}

TEST(HoldingTest, EveryKindCountsOnce) {
  Holding held;
  std::int64_t expected = 0;
  std::int64_t one = 1;
  for (const HoldingKind& kind : kHoldingKinds) {
    held.*kind.bytes = Bytes(one);
    expected += one;
    one *= 2;
    EXPECT_EQ(held.total(), Bytes(expected)) << kind.word;
  }
  EXPECT_EQ(held.reserved(), held.total() - held.outside);
  EXPECT_EQ(held.allocated(), held.reserved() - held.fragmentation);
}

// Of 80 GiB a device: all of 60 to 79 has room, of 70 to 90 nobody knows, of 81 to 99 nothing has.
TEST(RoomTest, FitsWhereAllOfItDoesAndDoesNotWhereNothingDoes) {
  const auto fits = [](Bytes low, Bytes high) {
    return Room{.held = {}, .low = low, .high = high, .capacity = gib(80)}.fits();
  };
  EXPECT_EQ(fits(gib(60), gib(80)), Fits::Yes);
  EXPECT_EQ(fits(gib(70), gib(90)), Fits::May);
  EXPECT_EQ(fits(gib(80), gib(81)), Fits::May);
  EXPECT_EQ(fits(gib(81), gib(99)), Fits::No);
  EXPECT_EQ((Room{.held = {}, .low = gib(900), .high = gib(999)}.fits()), Fits::Yes);
}

}  // namespace
}  // namespace dovetail::schedule
