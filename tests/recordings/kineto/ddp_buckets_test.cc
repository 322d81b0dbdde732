// DDP's buckets where a communication hook sends another type, and where they are filled by one copy: real steps of a known program
// (scripts/campaigns/gloo_traces.py) and made ones.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/ddp_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/recordings/kineto/made_events.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::imports {
namespace {

using testing::MadeEvents;

std::vector<TracedBuckets> buckets_of(const RankTrace& rank) {
  return ddp_buckets(rank.trace, rank.line);
}

// Four layers of 128 x 128 with a bias: two buckets of two layers, 33,024 elements of f32, that leave as bf16.
TEST(DdpBucketsTest, AHooksBucketsHaveTheBytesOfTheirGradients) {
  const JobTrace job = testing::gloo_job("ddp_hook", 1);
  const std::vector<TracedBuckets> steps = buckets_of(job.ranks[0]);
  ASSERT_EQ(steps.size(), 2U);
  for (const TracedBuckets& step : steps) {
    ASSERT_EQ(step.buckets.size(), 2U);
    for (const TracedBucket& bucket : step.buckets) {
      EXPECT_EQ(bucket.element_size, Bytes(4));
      EXPECT_EQ(bucket.sent_element, Bytes(2));
      EXPECT_EQ(bucket.bytes, Bytes(33'024 * 4));
      EXPECT_EQ(bucket.gradients.size(), 4U);
      EXPECT_TRUE(bucket.copied);
    }
    EXPECT_TRUE(step.sizes_known);
    EXPECT_FALSE(step.is_batched);
    EXPECT_FALSE(step.is_compressed);
    EXPECT_EQ(step.into.launches, 8);
    EXPECT_EQ(step.out.launches, 8);
  }
}

TEST(DdpBucketsTest, BatchedCopiesAreCopies) {
  const JobTrace job = testing::gloo_job("ddp_batched", 1);
  for (const TracedBuckets& step : buckets_of(job.ranks[0])) {
    ASSERT_EQ(step.buckets.size(), 2U);
    for (const TracedBucket& bucket : step.buckets) {
      EXPECT_TRUE(bucket.copied);
      EXPECT_EQ(bucket.gradients.size(), 4U);
      EXPECT_EQ(bucket.element_size, bucket.sent_element);
    }
    EXPECT_TRUE(step.is_batched);
    EXPECT_EQ(step.into.launches, 2);
    EXPECT_EQ(step.out.launches, 2);
  }
}

// A step of one gradient on a GPU: `inside` stands between its AccumulateGrad and the all-reduce of 1,024 elements of bf16.
TracedBuckets step_of(const std::string& shape, const std::string& copy, const std::string& inside,
                      int elements = 1024, const std::string& before = "") {
  MadeEvents events;
  const std::string message = R"("Collective name":"allreduce","In msg nelems":)" +
                              std::to_string(elements) + R"(,"Out msg nelems":)" +
                              std::to_string(elements) + R"(,"Group size":8,"dtype":"BFloat16")";
  events.step(3, 1000, 10'000);
  if (!before.empty()) events.op(before, 1050, 20);
  events.op("autograd::engine::evaluate_function: AddmmBackward0", 1100, 20);
  events.kernel("gemm", 7, 1200, 1000, events.launch(1, 1105));
  events.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 1200, 500);
  events.op("torch::autograd::AccumulateGrad", 1205, 5, shape);
  if (!copy.empty()) {
    events.op(copy, 1215, 15, shape);
    events.kernel("elementwise", 7, 2300, 100, events.launch(1, 1220));
  }
  if (!inside.empty()) {
    events.op(inside == "aten::_foreach_copy_" ? inside : "aten::to", 1240, 40);
    if (inside != "aten::_foreach_copy_") events.op(inside, 1245, 30);
    events.kernel("cast", 7, 2500, 50, events.launch(1, 1250));
    events.op("aten::div_", 1285, 30);
    events.kernel("divide", 7, 2600, 50, events.launch(1, 1290));
  }
  events.op("c10d::allreduce_", 1320, 80);
  events.op("record_param_comms", 1325, 60, message);
  events.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, 3000, 500, events.launch(1, 1340),
                message);
  const JobTrace job = testing::job_of(events.text());
  return buckets_of(job.ranks[0]).front();
}

constexpr const char* kHookCopy = "torch::distributed::reducer::copy_";
const std::string kFloats = R"("Input Dims":[[32,32]],"Input type":["float"])";

// torch.compile of the whole model with optimize_ddp off, and of each layer.
TEST(DdpBucketsTest, GradientsOfAWholeCompiledBackwardComeAtOnce) {
  for (const auto& [way, whole] : {std::pair("ddp_compiled", true), std::pair("ddp_blocks", false),
                                   std::pair("ddp_batched", false)}) {
    const JobTrace job = testing::gloo_job(way, 1);
    for (const TracedBuckets& step : buckets_of(job.ranks[0])) {
      EXPECT_GE(step.buckets.size(), 2U) << way;
      EXPECT_EQ(step.is_compiled_whole, whole) << way;
    }
  }
}

// A loss that is compiled by itself: the layers' backward follows, one after another.
TEST(DdpBucketsTest, ACompiledLossIsNoWholeBackward) {
  EXPECT_FALSE(
      step_of("", kHookCopy, "aten::_to_copy", 1024, "CompiledFunctionBackward").is_compiled_whole);
}

// Nothing says what a gradient was but that it was cast to 16 bits.
TEST(DdpBucketsTest, WithoutShapesACastTells) {
  for (const std::string& shape : {std::string(), kFloats}) {
    const TracedBucket cast = step_of(shape, kHookCopy, "aten::_to_copy").buckets.at(0);
    EXPECT_EQ(cast.bytes, Bytes(4096)) << shape;
    EXPECT_EQ(cast.sent_element, Bytes(2)) << shape;
    EXPECT_EQ(cast.copies_in.size(), 1U);
    // The gradient is there once the hook's division has ended, 1,650 us behind the step's begin.
    EXPECT_EQ(cast.gradients[0].ready, Instant(std::chrono::microseconds(1650))) << shape;
  }
  const TracedBucket bf16 = step_of("", "torch::distributed::reducer::mul_out", "").buckets.at(0);
  EXPECT_EQ(bf16.bytes, Bytes(2048));
  EXPECT_EQ(bf16.sent_element, Bytes(2));
  EXPECT_EQ(bf16.gradients[0].ready, Instant(std::chrono::microseconds(1400)));
}

TEST(DdpBucketsTest, ABatchFillsItsBucketWithItsDivision) {
  const TracedBuckets step = step_of("", "", "aten::_foreach_copy_");
  EXPECT_TRUE(step.is_batched);
  EXPECT_TRUE(step.buckets.at(0).copied);
  EXPECT_EQ(step.buckets.at(0).copies_in.size(), 2U);
  EXPECT_EQ(step.buckets.at(0).gradients[0].ready, Instant(std::chrono::microseconds(1650)));
  EXPECT_EQ(step.into.launches, 1);
  EXPECT_EQ(step.into.time, std::chrono::microseconds(50));
}

// PowerSGD sends factors; without a hook fewer elements are no compression.
TEST(DdpBucketsTest, FewerElementsOfAHookAreACompression) {
  EXPECT_TRUE(step_of(kFloats, kHookCopy, "aten::_to_copy", 64).is_compressed);
  EXPECT_FALSE(step_of(kFloats, kHookCopy, "aten::_to_copy").is_compressed);
  EXPECT_FALSE(step_of(kFloats, "torch::distributed::reducer::mul_out", "", 64).is_compressed);
}

}  // namespace
}  // namespace dovetail::imports
