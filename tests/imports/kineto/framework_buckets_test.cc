// The rules by which frameworks make buckets, and what a real step would gain by each.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/kineto/framework_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "imports/kineto/ddp_buckets.h"
#include "tests/imports/kineto/traces.h"

namespace dovetail::imports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Duration us(std::int64_t n) { return std::chrono::microseconds(n); }

// 6 + 4 = 10 may stay; 5 would make 15, 20 is alone, and 1 follows it alone.
TEST(FrameworkBucketsTest, ABucketIsClosedBeforeItWouldBeTooLarge) {
  const std::vector<Bytes> gradients = {Bytes(6), Bytes(4), Bytes(5), Bytes(20), Bytes(1)};
  EXPECT_THAT(ends_below(gradients, Bytes(10)), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(ends_below(gradients, Bytes(36)), ElementsAre(5));
  EXPECT_THAT(ends_below({}, Bytes(10)), IsEmpty());
}

// Cycles end at 1, 2, 3 ms: {0, 0.3, 0.9} {1.0} {2.5}; with 10 bytes the first is cut behind 6 + 4.
TEST(FrameworkBucketsTest, WhatIsReadyWithinACycleOfHorovodGoesAtOnce) {
  const StepGradients gradients{.bytes = {Bytes(6), Bytes(4), Bytes(5), Bytes(20), Bytes(1)},
                                .ready = {us(0), us(300), us(900), us(1000), us(2500)}};
  EXPECT_THAT(ends_by_cycle(gradients, Bytes(100), us(1000)), ElementsAre(3, 4, 5));
  EXPECT_THAT(ends_by_cycle(gradients, Bytes(10), us(1000)), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(ends_by_cycle(gradients, Bytes(100), us(5000)), ElementsAre(5));
}

// Three gradients of 1 Mi floats, 4 MiB each.
TEST(FrameworkBucketsTest, SizesAreInTheUnitOfTheFramework) {
  const StepGradients gradients{.bytes = {mib(4), mib(4), mib(4)},
                                .ready = {us(0), us(100), us(200)}};
  const auto setting = [&](Framework framework, std::size_t i) {
    return bucket_candidates(framework, gradients).at(i).setting;
  };
  // The third after the default is 4 MiB: 1048576 elements.
  EXPECT_EQ(setting(Framework::Torch, 3), "bucket_cap_mb=4");
  EXPECT_EQ(setting(Framework::Megatron, 3), "--ddp-bucket-size 1048576");
  EXPECT_EQ(setting(Framework::DeepSpeed, 3), "\"reduce_bucket_size\": 1048576");
  EXPECT_EQ(setting(Framework::Horovod, 3),
            "HOROVOD_FUSION_THRESHOLD=4194304 HOROVOD_CYCLE_TIME=1");
  EXPECT_EQ(setting(Framework::Xla, 3), "--xla_gpu_all_reduce_combine_threshold_bytes=4194304");
  EXPECT_EQ(setting(Framework::Fsdp, 2), "fully_shard lists of 4 MiB");
  // Sizes end with the first that makes one bucket: 12 MiB are not in the list, 16 MiB are.
  EXPECT_THAT(bucket_candidates(Framework::Torch, gradients).back().ends, ElementsAre(3));
  EXPECT_EQ(bucket_candidates(Framework::Torch, gradients).back().setting, "bucket_cap_mb=16");
  // Megatron's default grows with the ranks beyond 40: 64,000,000 elements of 4 bytes.
  StepGradients many = gradients;
  many.bytes = {Bytes(100'000'000), Bytes(100'000'000), Bytes(56'000'000), mib(1)};
  many.ready.push_back(us(300));
  EXPECT_THAT(bucket_candidates(Framework::Megatron, many).front().ends, ElementsAre(2, 4));
  many.ranks = 64;
  EXPECT_THAT(bucket_candidates(Framework::Megatron, many).front().ends, ElementsAre(3, 4));
}

TEST(FrameworkBucketsTest, AListIsInTheWordsOfWhoHasOne) {
  const StepGradients gradients{.bytes = {mib(4), mib(4), Bytes(3 << 19)},
                                .ready = {us(0), us(100), us(200)}};
  EXPECT_EQ(list_candidate(Framework::Torch, gradients, {1, 3})->line,
            "DistributedDataParallel(model, bucket_cap_mb_list=[4, 5.5])");
  EXPECT_THAT(list_candidate(Framework::Horovod, gradients, {1, 3})->line,
              HasSubstr("buckets of 1, 2 parameters"));
  EXPECT_FALSE(list_candidate(Framework::DeepSpeed, gradients, {1, 3}).has_value());
  EXPECT_FALSE(list_candidate(Framework::Fsdp, gradients, {1, 3}).has_value());
}

struct Expected {
  Framework framework;
  const char* setting;            // the default's
  std::vector<std::size_t> ends;  // of the buckets it makes of ResNet-50
};

// ResNet-50 in float32: 25,557,032 elements, so the defaults of Megatron (40,000,000 elements) and DeepSpeed
// (500,000,000) are larger than all of it. XLA's 31,457,287 bytes hold the 16 parameters from the classifier
// to the last block but its first product, and so on: sums of the architecture's own sizes.
TEST(FrameworkBucketsTest, ARealStepHasTheBucketsOfEachFrameworksDefault) {
  const JobTrace job = testing::resnet50();
  const RankTrace& rank = job.ranks[0];
  std::vector<TracedBuckets> steps;
  for (const TracedStep& step : rank.line.steps) {
    steps.push_back(ddp_buckets(rank.trace, rank.line, step));
  }
  StepGradients gradients;
  for (const TracedBucket& bucket : steps.back().buckets) {
    for (const TracedGradient& gradient : bucket.gradients) {
      gradients.bytes.push_back(bucket.element_size * gradient.elements);
      gradients.ready.push_back(gradient.ready - steps.back().buckets[0].gradients[0].ready);
    }
  }
  for (const Expected& expected : {
           Expected{Framework::Torch, "bucket_cap_mb=None", {2, 17, 29, 80, 161}},
           Expected{Framework::Megatron, "--overlap-grad-reduce", {161}},
           Expected{Framework::DeepSpeed, "\"reduce_bucket_size\": 500000000", {161}},
           Expected{Framework::Xla,
                    "--xla_gpu_all_reduce_combine_threshold_bytes=31457287",
                    {16, 28, 73, 161}},
       }) {
    SCOPED_TRACE(std::string(name_of(expected.framework)));
    const BucketCandidate usual = bucket_candidates(expected.framework, gradients).front();
    EXPECT_TRUE(usual.is_default);
    EXPECT_EQ(usual.setting, expected.setting);
    EXPECT_EQ(usual.ends, expected.ends);
  }
}

}  // namespace
}  // namespace dovetail::imports
