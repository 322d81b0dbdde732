// The padding of buckets takes part in collectives, so it is zeroed before a plan runs.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/tensor_memory.h"

#include "tests/exec/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

namespace dovetail::exec {
namespace {

// Two buckets, of 70 and 1000 floats, each with two floats of padding behind. What another plan left
// in the memory is not a number: a scan of the buffer would find it, and sums would spread it.
TEST(PaddingTest, P27PL20PaddingIsZeroedAndNothingElse) {
  const auto plan = testing::two_buckets({.padding = Bytes(8)});
  const cpu::TensorMemory memory(
      plan, {.rank = Rank{0}, .workspace = std::make_shared<cpu::Workspace>()});
  const auto is_nan = [](float value) { return std::isnan(value); };
  for (const BucketId bucket : {BucketId{0}, BucketId{1}}) {
    std::ranges::fill(memory.bucket(bucket), std::numeric_limits<float>::quiet_NaN());
  }
  memory.clear_padding();
  for (const BucketId bucket : {BucketId{0}, BucketId{1}}) {
    const std::span<float> buffer = memory.bucket(bucket);
    const std::size_t payload = buffer.size() - 2;
    EXPECT_EQ(payload, bucket == BucketId{0} ? 70U : 1000U);
    EXPECT_TRUE(std::ranges::all_of(buffer.first(payload), is_nan));
    EXPECT_EQ(buffer[payload], 0);
    EXPECT_EQ(buffer[payload + 1], 0);
  }
}

}  // namespace
}  // namespace dovetail::exec
