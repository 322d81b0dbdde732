// The buckets that the defaults of frameworks make of a real step.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/settings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "recordings/timeline/ddp_buckets.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::imports {
namespace {

struct Expected {
  const char* framework;
  const char* setting;            // the default's
  std::vector<std::size_t> ends;  // of the buckets it makes of ResNet-50
};

// ResNet-50 in float32: 25,557,032 elements, so the defaults of Megatron (40,000,000 elements) and DeepSpeed
// (500,000,000) are larger than all of it. XLA's 31,457,287 bytes hold the 16 parameters from the classifier
// to the last block but its first product, and so on: sums of the architecture's own sizes.
TEST(SettingsTest, ARealStepHasTheBucketsOfEachFrameworksDefault) {
  const JobTrace job = testing::resnet50();
  const RankTrace& rank = job.ranks[0];
  std::vector<TracedBuckets> steps;
  for (const TracedStep& step : rank.line.steps) {
    steps.push_back(ddp_buckets(rank.trace, rank.line, step));
  }
  frameworks::StepGradients gradients;
  for (const TracedBucket& bucket : steps.back().buckets) {
    for (const TracedGradient& gradient : bucket.gradients) {
      gradients.bytes.push_back(bucket.element_size * gradient.elements);
      gradients.ready.push_back(gradient.ready - steps.back().buckets[0].gradients[0].ready);
    }
  }
  for (const Expected& expected : {
           Expected{"torch", "bucket_cap_mb=None", {2, 17, 29, 80, 161}},
           Expected{"megatron", "--overlap-grad-reduce", {161}},
           Expected{"deepspeed", "\"reduce_bucket_size\": 500000000", {161}},
           Expected{
               "xla", "--xla_gpu_all_reduce_combine_threshold_bytes=31457287", {8, 20, 38, 161}},
       }) {
    SCOPED_TRACE(expected.framework);
    const frameworks::BucketCandidate usual =
        bucket_candidates(frameworks::framework(expected.framework), gradients).front();
    EXPECT_TRUE(usual.is_default);
    EXPECT_EQ(usual.setting, expected.setting);
    EXPECT_EQ(usual.ends, expected.ends);
  }
}

}  // namespace
}  // namespace dovetail::imports
