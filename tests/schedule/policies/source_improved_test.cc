// What the improved policy does where the source gives up, and gradient merge with it.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "schedule/lower/lower.h"
#include "schedule/verify/verify.h"
#include "tests/schedule/policies/policy_results.h"
#include "tests/support/oracle.h"
#include "tests/support/step_builder.h"

namespace dovetail::schedule {
namespace {

using dovetail::testing::expect_oracle;
using dovetail::testing::LossFill;
using dovetail::testing::StepBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PolicyResult improved(const Program& program, const std::string& policy = "source-improved") {
  EXPECT_THAT(problems(program), IsEmpty());
  return apply_policy(program, parse_policy(policy));
}

TEST(SourceImprovedTest, O1PL5FusesProcessGroupsThatAlternate) {
  StepBuilder step;
  const GroupId a = step.group(4);
  const GroupId b = step.group(4);
  for (int i = 0; i < 8; ++i) step.backward("l" + std::to_string(i), {{1000, i % 2 == 0 ? a : b}});
  const PolicyResult result = improved(step.build(kAdam));
  expect_oracle("O1 ours: 8 over alternating process groups", members(result),
                std::vector<std::size_t>{4, 4});
  EXPECT_EQ(result.schedule.buckets[0].stream, StreamChoice(CommStream{0}));
  EXPECT_EQ(result.schedule.buckets[1].stream, StreamChoice(CommStream{1}));
}

TEST(SourceImprovedTest, O1PL9BeginsABucketBetweenTwoGradientsOfOneOp) {
  // O1: six ops with two gradients of 1000 elements, 3000 to a bucket: 12 become 4.
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (int i = 0; i < 6; ++i) step.backward("l" + std::to_string(i), {{1000, dp}, {1000, dp}});
  const Program program = step.build(kAdam);
  const PolicyResult result = improved(program, "source-improved:cap=12000B");
  expect_oracle("O1 ours: 6 ops x 2 gradients x 1000, cap 3000", members(result),
                std::vector<std::size_t>(4, 3));
  EXPECT_THAT(result.refusals, IsEmpty());
}

TEST(SourceImprovedTest, PL8ScalesEachBucketOnceWhereTheFactorCannotBeFolded) {
  StepBuilder step;
  const GroupId a = step.group(2);
  const GroupId b = step.group(4);
  for (int i = 0; i < 8; ++i) step.backward("l" + std::to_string(i), {{1000, i < 4 ? a : b}});
  const PolicyResult result = improved(step.build(kAdam));
  EXPECT_THAT(members(result), ElementsAre(4, 4));
  EXPECT_EQ(result.schedule.scale, ScaleAt::AfterCollective);
}

TEST(SourceImprovedTest, P9FoldsFactorsIntoTheLossThenTheOptimizerThenTheBucket) {
  const auto scale = [](LossFill fill, const Effect& update, std::int64_t second) {
    StepBuilder step(ReduceOp::Average, fill);
    const GroupId a = step.group(2);
    const GroupId b = step.group(second);
    step.backward("x", {{10, a}});
    step.backward("y", {{10, b}});
    return improved(step.build(update)).schedule.scale;
  };
  EXPECT_EQ(scale(LossFill::Present, kAdam, 2), ScaleAt::LossGradient);
  EXPECT_EQ(scale(LossFill::Present, kMomentum, 4), ScaleAt::Optimizer);
  EXPECT_EQ(scale(LossFill::Absent, kMomentum, 2), ScaleAt::Optimizer);
  EXPECT_EQ(scale(LossFill::Present, kAdam, 4), ScaleAt::AfterCollective);
  EXPECT_EQ(scale(LossFill::Absent, kAdam, 2), ScaleAt::AfterCollective);
}

TEST(SourceImprovedTest, P13AnImpossibleFoldThatWasAskedForIsRefusedInWords) {
  StepBuilder step(ReduceOp::Average, LossFill::Absent);
  step.backward("x", {{10, step.group(2)}});
  const Program program = step.build(kAdam);
  EXPECT_EQ(improved(program, "source-improved:scale=loss-gradient").failure,
            "scale=loss-gradient: no op is known to fill the gradient of the loss");
  EXPECT_EQ(improved(program, "source-improved:scale=optimizer").failure,
            "scale=optimizer: optimizer op x.0.update has no rescale factor");
  EXPECT_EQ(improved(program, "source-improved:scale=before-collective").failure, std::nullopt);
}

// b is read by `use`, at position 4: c, produced before it, may join; d may not, and neither may
// anything else until a new bucket is open.
TEST(SourceImprovedTest, P22AReaderBoundsTheLaunchOfItsBucketOnly) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  step.backward("a", {{10, dp}});
  const TensorId b = step.backward("b", {{10, dp}}).front();
  step.backward("c", {{10, dp}});
  step.reader("use", b);
  step.backward("d", {{10, dp}});
  step.backward("e", {{10, dp}});
  const Program program = step.build(kAdam);
  const PolicyResult result = improved(program);
  EXPECT_THAT(members(result), ElementsAre(3, 2));
  EXPECT_THAT(reasons(result), ElementsAre("reader", "end"));
  EXPECT_THAT(verify(program, lower(program, result.schedule).program, result.schedule.merge),
              IsEmpty());
}

TEST(SourceImprovedTest, P22AReaderDoesNotSplitBucketsOfOtherKeys) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  const TensorId a = step.backward("a", {{10, dp}}).front();
  step.backward("h1", {{10, dp, DType::F16}});
  step.reader("use", a);
  step.backward("b", {{10, dp}});
  step.backward("h2", {{10, dp, DType::F16}});
  const Program program = step.build(kAdam);
  const PolicyResult result = improved(program);
  // In the order in which they are ready: a; then b; then both halves.
  EXPECT_THAT(members(result), ElementsAre(1, 1, 2));
  EXPECT_THAT(reasons(result), ElementsAre("reader", "end", "end"));
  EXPECT_THAT(verify(program, lower(program, result.schedule).program, result.schedule.merge),
              IsEmpty());
}

TEST(SourceImprovedTest, ABatchThatWouldBeLaunchedAfterAReaderIsRefused) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  const TensorId a = step.backward("a", {{10, dp}}).front();
  step.reader("use", a);
  step.backward("b", {{10, dp}});
  const Program program = step.build(kAdam);
  EXPECT_EQ(improved(program).failure, std::nullopt);
  EXPECT_EQ(improved(program, "source-improved:batch=2").failure,
            "backward op use reads the reduced a.0, but bucket 0 is launched only later");
  EXPECT_EQ(improved(program, "one-bucket").failure,
            "backward op use reads the reduced a.0, but bucket 0 is launched only later");
  EXPECT_THROW(make_schedule(program, parse_policy("no-overlap")), InputError);
}

TEST(SourceImprovedTest, P14StreamsAreSharedAboveTheLimit) {
  StepBuilder step;
  for (int i = 0; i < 3; ++i) step.backward("l" + std::to_string(i), {{10, step.group(2)}});
  std::vector<StreamChoice> streams;
  const PolicyResult result = improved(step.build(kAdam), "source-improved:max-streams=2");
  for (const Bucket& bucket : result.schedule.buckets) streams.push_back(bucket.stream);
  EXPECT_THAT(streams, ElementsAre(StreamChoice(CommStream{0}), StreamChoice(CommStream{1}),
                                   StreamChoice(CommStream{0})));
}

TEST(BatchesTest, A10LaunchesWholeBatchesAndLeavesTheTail) {
  StepBuilder step;
  const GroupId dp = step.group(2);
  for (int i = 0; i < 5; ++i) step.backward("l" + std::to_string(i), {{10, dp}});
  const Program program = step.build(kAdam);
  const auto launches = [&](const std::string& policy) {
    std::vector<LaunchPoint> points;
    for (const Bucket& bucket : make_schedule(program, parse_policy(policy)).buckets) {
      points.push_back(bucket.launch);
    }
    return points;
  };
  const LaunchPoint first = LaunchInBatch{0};
  const LaunchPoint second = LaunchInBatch{1};
  EXPECT_THAT(launches("per-tensor:batch=2"),
              ElementsAre(first, first, second, second, LaunchPoint(LaunchAfterBackward{})));
  EXPECT_THAT(launches("per-tensor:batch=2,tail=last-gradient"),
              ElementsAre(first, first, second, second, LaunchPoint(LaunchInBatch{2})));
}

TEST(GradientMergeTest, GM1GML1MergesFourMicroStepsByDefaultAndAveragesThem) {
  EXPECT_EQ(accumulation(parse_policy("gradient-merge")), (Merge{.micro_steps = 4,
                                                                 .op = ReduceOp::Average,
                                                                 .sync = SyncPoint::LastMicroStep,
                                                                 .dtype = DType::F32}));
  EXPECT_EQ(accumulation(parse_policy("gradient-merge:average=no")).op, ReduceOp::Sum);
  EXPECT_EQ(accumulation(parse_policy("gradient-merge:k=2,sync=every")).sync,
            SyncPoint::EveryMicroStep);
}

TEST(GradientMergeTest, GMI9OneMicroStepIsNoMerge) {
  StepBuilder step;
  step.backward("x", {{10, step.group(2)}});
  const Program program = step.build(kAdam);
  EXPECT_EQ(improved(program, "gradient-merge:k=1,sync=every").schedule.merge, Merge{});
  EXPECT_EQ(improved(program, "gradient-merge:k=3").schedule.merge.micro_steps, 3);
}

TEST(GradientMergeTest, GML5TheCapCountsTheBytesOfTheSums) {
  StepBuilder step;
  const GroupId dp = step.group(2);
  for (int i = 0; i < 4; ++i) {
    step.backward("l" + std::to_string(i), {{1000, dp, DType::F16}});
  }
  const Program program = step.build(kAdam);
  // 2000 bytes each as gradients; 4000 as sums in f32.
  EXPECT_THAT(members(improved(program, "gradient-merge:sync=every,cap=8000B")), ElementsAre(4));
  EXPECT_THAT(members(improved(program, "gradient-merge:sync=last,cap=8000B")), ElementsAre(2, 2));
  EXPECT_THAT(members(improved(program, "gradient-merge:sums=f16,cap=8000B")), ElementsAre(4));
}

TEST(GradientMergeTest, GM8AfterTheLastMicroStepNothingOverlaps) {
  StepBuilder step;
  step.backward("x", {{10, step.group(2)}});
  const PolicyResult result = improved(step.build(kAdam), "gradient-merge:sync=after");
  EXPECT_EQ(result.schedule.buckets.front().launch, LaunchPoint(LaunchAfterBackward{}));
}

TEST(GradientMergeTest, AReaderWithinAMicroStepNeedsSyncEvery) {
  StepBuilder step;
  const GroupId dp = step.group(2);
  step.reader("use", step.backward("x", {{10, dp}}).front());
  const Program program = step.build(kAdam);
  EXPECT_EQ(improved(program, "gradient-merge:k=2,sync=last").failure,
            "backward op use reads the reduced x.0 in every micro-step, but sync=last reduces only "
            "the sum of all micro-steps: use sync=every");
  EXPECT_EQ(improved(program, "gradient-merge:k=2,sync=every").failure, std::nullopt);
}

}  // namespace
}  // namespace dovetail::schedule
