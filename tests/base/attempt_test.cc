// A call that may be refused: its value, or the words of the refusal.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/attempt.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "base/units.h"

namespace dovetail {
namespace {

TEST(AttemptTest, ItIsTheValueOrTheWordsOfTheError) {
  const auto size = attempt([] { return parse_bytes("2KiB"); });
  ASSERT_TRUE(size);
  EXPECT_EQ(*size.value, kib(2));
  EXPECT_EQ(size.error, "");
  const auto none = attempt([]() -> Bytes { throw InputError("plan.json: no size"); });
  EXPECT_FALSE(none);
  EXPECT_EQ(none.error, "plan.json: no size");
}

TEST(AttemptTest, ACallWithoutAResultSaysWhetherItWasRefused) {
  int calls = 0;
  EXPECT_TRUE(attempt([&] { ++calls; }));
  EXPECT_EQ(attempt([&] {
              ++calls;
              throw InputError("not by this one");
            }).error,
            "not by this one");
  EXPECT_EQ(calls, 2);
}

TEST(AttemptTest, WhatCannotBeCopiedIsMovedOut) {
  auto owned = attempt([] { return std::make_unique<int>(7); });
  const std::unique_ptr<int> seven = *std::move(owned.value);
  EXPECT_EQ(*seven, 7);
}

TEST(AttemptTest, OtherErrorsPassThrough) {
  EXPECT_THROW(attempt([] { throw DeviceError("rank 1: gone"); }), DeviceError);
  EXPECT_THROW(attempt([] { DOVETAIL_CHECK(false) << "we are wrong"; }), CheckError);
}

}  // namespace
}  // namespace dovetail
