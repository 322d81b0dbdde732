// The padding of buckets takes part in collectives, so it is zeroed before each step.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/device.h"
#include "exec/ops/synthetic_ops.h"
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
  cpu::CpuDevice device(std::make_shared<cpu::Workspace>());
  DeviceMemory memory(device, Layout(plan, Rank{0}, Scope::Communicated), Room::Tensors);
  SyntheticOps ops(plan, Rank{0}, memory);
  const auto is_nan = [](float value) { return std::isnan(value); };
  const auto buffer_of = [&](BucketId bucket) {
    return cpu::floats(memory.at(memory.layout().bucket(bucket)));
  };
  for (const BucketId bucket : {BucketId{0}, BucketId{1}}) {
    std::ranges::fill(buffer_of(bucket), std::numeric_limits<float>::quiet_NaN());
  }
  ops.begin_step(0, nullptr);
  for (const BucketId bucket : {BucketId{0}, BucketId{1}}) {
    const std::span<float> buffer = buffer_of(bucket);
    const std::size_t payload = buffer.size() - 2;
    EXPECT_EQ(payload, bucket == BucketId{0} ? 70U : 1000U);
    EXPECT_TRUE(std::ranges::all_of(buffer.first(payload), is_nan));
    EXPECT_EQ(buffer[payload], 0);
    EXPECT_EQ(buffer[payload + 1], 0);
  }
}

}  // namespace
}  // namespace dovetail::exec
