// Each index once, and what happens when one fails.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace dovetail {
namespace {

TEST(ParallelForTest, CallsEachIndexOnce) {
  std::vector<int> calls(1000, 0);
  parallel_for(calls.size(), [&](std::size_t i) { ++calls[i]; });
  EXPECT_EQ(calls, std::vector<int>(1000, 1));
  parallel_for(0, [](std::size_t) { FAIL(); });
}

TEST(ParallelForTest, AnExceptionIsThrownAgainAndEndsTheWork) {
  std::atomic<std::size_t> begun = 0;
  const auto work = [&](std::size_t i) {
    ++begun;
    if (i == 0) throw std::runtime_error("zero");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // all of them would take minutes
  };
  try {
    parallel_for(1'000'000, work);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), std::string("zero"));
  }
  EXPECT_LT(begun, 1'000'000U);
}

}  // namespace
}  // namespace dovetail
