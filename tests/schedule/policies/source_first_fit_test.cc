// The baseline against the source's own figures: oracles O1 and O2, and the rules behind them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/source_first_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "schedule/policies/policies.h"
#include "tests/schedule/policies/policy_results.h"
#include "tests/support/oracle.h"
#include "tests/support/step_builder.h"

namespace dovetail::schedule {
namespace {

using dovetail::testing::expect_oracle;
using dovetail::testing::LossFill;
using dovetail::testing::StepBuilder;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PolicyResult first_fit(const Program& program, const std::string& options = "") {
  EXPECT_THAT(problems(program), IsEmpty());
  return apply_policy(program, parse_policy("source-first-fit" + options));
}

using Sizes = std::vector<std::size_t>;

std::vector<StreamChoice> streams(const PolicyResult& result) {
  std::vector<StreamChoice> choices;
  for (const Bucket& bucket : result.schedule.buckets) choices.push_back(bucket.stream);
  return choices;
}

// `count` ops with one gradient each, over one process group of 4 ranks.
Program layers(std::size_t count, std::int64_t elements) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (std::size_t i = 0; i < count; ++i) {
    step.backward("l" + std::to_string(i), {{elements, dp}});
  }
  return step.build(kAdam);
}

// `count` ops with two gradients each.
Program pairs(std::size_t count, std::int64_t elements) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (std::size_t i = 0; i < count; ++i) {
    step.backward("l" + std::to_string(i), {{elements, dp}, {elements, dp}});
  }
  return step.build(kAdam);
}

// Eight gradients, the first four over 2 ranks and the last four over 4.
Program two_degrees(ReduceOp reduction, const Effect& update) {
  StepBuilder step(reduction);
  const GroupId a = step.group(2);
  const GroupId b = step.group(4);
  for (int i = 0; i < 8; ++i) step.backward("l" + std::to_string(i), {{1000, i < 4 ? a : b}});
  return step.build(update);
}

TEST(SourceFirstFitTest, O1EightLayersUnderTheDefaultCapAreOneBucket) {
  const PolicyResult result = first_fit(layers(8, 1000));
  expect_oracle("O1 8 layers x 1000, default cap", members(result), Sizes{8});
  // The loss fill becomes 1/4; no scale op stays.
  EXPECT_EQ(result.schedule.scale, ScaleAt::LossGradient);
  EXPECT_THAT(result.report, Contains("8 all-reduces fused into 1: 31.2 KiB, padding 768 B, "
                                      "0 single gradients apart"));
  EXPECT_THAT(result.refusals, IsEmpty());
}

TEST(SourceFirstFitTest, O1ACapOf6000ElementsMakesBucketsOf6And6And4) {
  const PolicyResult result = first_fit(pairs(8, 1000), ":elements=6000");
  expect_oracle("O1 8 ops x 2 gradients x 1000, cap 6000", members(result), Sizes{6, 6, 4});
  EXPECT_THAT(reasons(result), ElementsAre("cap", "cap", "end"));
  EXPECT_THAT(result.report, Contains(HasSubstr("16 all-reduces fused into 3")));
}

TEST(SourceFirstFitTest, O1P19ACapThatIsMetExactlyStillAccepts) {
  expect_oracle("O1 4 x 500, cap 1000", members(first_fit(layers(4, 500), ":elements=1000")),
                Sizes{2, 2});
}

TEST(SourceFirstFitTest, P19AcceptsAGradientThatExactlyFillsTheCap) {
  // 500 + 500 = 1000 fits a cap of 1000.
  EXPECT_THAT(members(first_fit(layers(4, 500), ":elements=1000")), ElementsAre(2, 2));
  EXPECT_THAT(members(first_fit(layers(4, 500), ":elements=999")), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(members(first_fit(layers(4, 500), ":cap=4000B")), ElementsAre(2, 2));
}

TEST(SourceFirstFitTest, P19AcceptsAnythingIntoAnEmptyBucket) {
  EXPECT_THAT(members(first_fit(layers(3, 5000), ":elements=1000")), ElementsAre(1, 1, 1));
}

TEST(SourceFirstFitTest, P19PL4CountsElementsNotBytes) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (int i = 0; i < 4; ++i) {
    step.backward("l" + std::to_string(i), {{1000, dp, DType::F16}});
  }
  const Program program = step.build(kAdam);
  EXPECT_THAT(members(first_fit(program, ":elements=2000")), ElementsAre(2, 2));
  EXPECT_THAT(members(first_fit(program, ":cap=4000B")), ElementsAre(2, 2));
  EXPECT_THAT(members(first_fit(program, ":cap=8000B")), ElementsAre(4));
}

TEST(SourceFirstFitTest, P20TheDefaultCapHolds50331648Elements) {
  // 2 x (4 x 2048) x 2048 + (3 + 1) x 2048 x 2048 = 33,554,432 + 16,777,216.
  EXPECT_EQ(kSourceElements, 2 * 4 * 2048 * 2048 + 4 * 2048 * 2048);
  EXPECT_EQ(std::get<FirstFit>(*parse_policy("source-first-fit").decisions.grouping).elements,
            kSourceElements);
  EXPECT_THAT(members(first_fit(layers(3, kSourceElements / 2))), ElementsAre(2, 1));
}

TEST(SourceFirstFitTest, O1TwoDegreesWithAnOptimizerWithoutRescaleAreNotFused) {
  const PolicyResult result = first_fit(two_degrees(ReduceOp::Average, kAdam));
  expect_oracle("O1 4 over 2 ranks then 4 over 4 ranks, Adam, scales kept", members(result),
                Sizes(8, 1));
  EXPECT_THAT(reasons(result), Each("reader"));  // the scale that stays after each reduction
  EXPECT_EQ(result.schedule.scale, ScaleAt::AfterCollective);
  EXPECT_THAT(result.report.front(), HasSubstr("scale ops stay: optimizer op l0.0.update has no"));
}

TEST(SourceFirstFitTest, O1TwoDegreesWithoutScalesAreTwoBuckets) {
  const PolicyResult result = first_fit(two_degrees(ReduceOp::Sum, kAdam));
  expect_oracle("O1 the same without scale ops", members(result), Sizes{4, 4});
  EXPECT_THAT(reasons(result), ElementsAre("process group", "end"));
}

TEST(SourceFirstFitTest, O1TwoDegreesWithMomentumAreTwoBuckets) {
  const PolicyResult result = first_fit(two_degrees(ReduceOp::Average, kMomentum));
  expect_oracle("O1 the same with scales and momentum", members(result), Sizes{4, 4});
  EXPECT_EQ(result.schedule.scale, ScaleAt::Optimizer);
}

TEST(SourceFirstFitTest, O1AlternatingProcessGroupsAreNotFused) {
  StepBuilder step;
  const GroupId a = step.group(4);
  const GroupId b = step.group(4);
  for (int i = 0; i < 8; ++i) step.backward("l" + std::to_string(i), {{1000, i % 2 == 0 ? a : b}});
  expect_oracle("O1 8 over alternating process groups", members(first_fit(step.build(kAdam))),
                Sizes(8, 1));
}

TEST(SourceFirstFitTest, O1P30PL11SeventeenProcessGroupsAreFusedOnTheOneSyncStream) {
  StepBuilder step;
  for (int i = 0; i < 17; ++i) {
    const GroupId group = step.group(2);
    step.backward("a" + std::to_string(i), {{1000, group}});
    step.backward("b" + std::to_string(i), {{1000, group}});
  }
  const PolicyResult result = first_fit(step.build(kAdam));
  expect_oracle("O1 17 process groups x 2 gradients", members(result), Sizes(17, 2));
  EXPECT_THAT(result.refusals, ElementsAre("overlap: 17 process groups and at most 16 streams"));
  EXPECT_THAT(streams(result), Each(StreamChoice(CommStream{0})));  // P30, PL11
}

TEST(SourceFirstFitTest, P14TheNumberOfStreamsIsAnOption) {
  StepBuilder step;
  const GroupId a = step.group(2);
  const GroupId b = step.group(2);
  step.backward("a", {{1000, a}});
  step.backward("b", {{1000, b}});
  const Program program = step.build(kAdam);
  EXPECT_THAT(first_fit(program).refusals, IsEmpty());
  EXPECT_THAT(first_fit(program, ":max-streams=1").refusals,
              ElementsAre("overlap: 2 process groups and at most 1 stream"));
  // Not fused and not overlapped: on the compute stream, as they came.
  EXPECT_THAT(streams(first_fit(program, ":max-streams=1,fuse=no")),
              Each(StreamChoice(InlineStream{})));
}

TEST(SourceFirstFitTest, O1P17AHigherOrderOpSwitchesFusionOff) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (int i = 0; i < 8; ++i) {
    step.backward(i == 3 ? "matmul_grad_grad" : "l" + std::to_string(i), {{1000, dp}});
  }
  const PolicyResult result = first_fit(step.build(kAdam));
  expect_oracle("O1 8 beside a higher-order op", members(result), Sizes(8, 1));
  EXPECT_THAT(result.refusals, ElementsAre(HasSubstr("matmul_grad_grad is a higher-order op")));
  // Still overlapped: eight collectives on the process group's stream (P15).
  EXPECT_THAT(streams(result), Each(StreamChoice(CommStream{0})));
}

TEST(SourceFirstFitTest, O1ATensorParallelAllReduceBeforeTheReductionDoesNotBreakTheBucket) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  const GroupId tp = step.group(2);
  for (int i = 0; i < 4; ++i) {
    const auto gradients = step.backward("l" + std::to_string(i), {{1000, dp}});
    step.tensor_parallel(gradients.front(), tp);
  }
  expect_oracle("O1 4 behind tensor-parallel all-reduces", members(first_fit(step.build(kAdam))),
                Sizes{4});
}

TEST(SourceFirstFitTest, O1ShardedProgramsAreNeitherFusedNorOverlapped) {
  const PolicyResult result = first_fit(layers(4, 1000), ":sharding=yes");
  expect_oracle("O1 4 with sharding on", members(result), Sizes(4, 1));
  EXPECT_EQ(result.schedule.scale, ScaleAt::LossGradient);  // scaling still pruned
  EXPECT_THAT(streams(result), Each(StreamChoice(InlineStream{})));
  EXPECT_THAT(result.refusals,
              ElementsAre("overlap: the program is sharded", "fusion: the program is sharded"));
}

TEST(SourceFirstFitTest, O1PL9ABoundaryBetweenTwoGradientsOfOneOpIsRefused) {
  // The bias of the second op would open the second bucket.
  const PolicyResult result = first_fit(pairs(6, 1000), ":elements=3000");
  EXPECT_THAT(result.refusals,
              ElementsAre("fusion: a bucket would begin between two gradients of l1, at l1.1, "
                          "whose reduction does not follow its producer"));
  expect_oracle("O1 6 ops x 2 gradients x 1000, cap 3000", members(result), Sizes(12, 1));  // PI11
}

TEST(SourceFirstFitTest, PL9AlsoRefusesABiasWhoseWeightFillsTheBucketAlone) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  step.backward("fc", {{5000, dp}, {10, dp}});
  const PolicyResult result = first_fit(step.build(kAdam), ":elements=1000");
  EXPECT_THAT(result.refusals, ElementsAre(HasSubstr("at fc.1")));
}

TEST(SourceFirstFitTest, P22AReaderOfAMemberClosesTheBucketAndOtherReadersDoNot) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  step.backward("a", {{10, dp}});
  const TensorId b = step.backward("b", {{10, dp}}).front();
  step.backward("c", {{10, dp}});
  step.reader("use", b);
  step.backward("d", {{10, dp}});
  step.reader("again", b);  // b's bucket is closed already
  step.backward("e", {{10, dp}});
  // No scale ops, which would close each bucket too (PL8).
  const PolicyResult result = first_fit(step.build(kAdam), ":scale=collective");
  EXPECT_THAT(members(result), ElementsAre(3, 2));
  EXPECT_THAT(reasons(result), ElementsAre("reader", "end"));
}

TEST(SourceFirstFitTest, P21ADtypeChangeClosesTheBucket) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  step.backward("a", {{10, dp}});
  step.backward("b", {{10, dp, DType::F16}});
  step.backward("c", {{10, dp, DType::F16}});
  const PolicyResult result = first_fit(step.build(kAdam));
  EXPECT_THAT(members(result), ElementsAre(1, 2));
  EXPECT_THAT(reasons(result), ElementsAre("dtype", "end"));
}

TEST(SourceFirstFitTest, P23ASingleGradientIsItsOwnBufferWithoutPadding) {
  const PolicyResult result = first_fit(layers(3, 500), ":elements=1000");
  EXPECT_EQ(result.schedule.buckets[0].pad_to, Bytes(256));
  EXPECT_EQ(result.schedule.buckets[0].align_to, Bytes(256));
  EXPECT_EQ(result.schedule.buckets[1].align_to, Bytes(1));
  EXPECT_EQ(result.schedule.buckets[1].pad_to, Bytes(1));
  EXPECT_THAT(result.report, Contains(HasSubstr("1 single gradient apart")));
}

TEST(SourceFirstFitTest, P16WaitsForTheWholeStreamAtFirstUse) {
  const Bucket bucket = first_fit(layers(2, 10)).schedule.buckets.front();
  EXPECT_EQ(bucket.wait, WaitPoint::FirstUse);
  EXPECT_EQ(bucket.scope, WaitScope::WholeStream);
  EXPECT_EQ(bucket.mode, BucketMode::View);
  EXPECT_EQ(bucket.launch, LaunchPoint(LaunchWhenReady{}));
}

TEST(SourceFirstFitTest, P10WithoutALossFillTheCollectivesAverage) {
  StepBuilder step(ReduceOp::Average, LossFill::Absent);
  const GroupId dp = step.group(4);
  step.backward("a", {{10, dp}});
  step.backward("b", {{10, dp}});
  const PolicyResult result = first_fit(step.build(kAdam));
  EXPECT_EQ(result.schedule.scale, ScaleAt::Collective);
  EXPECT_THAT(result.report.front(), HasSubstr("no op is known to fill the gradient of the loss"));
  EXPECT_THAT(members(result), ElementsAre(2));
}

TEST(SourceFirstFitTest, P7LeavesAProgramWithoutReductionsAlone) {
  StepBuilder step;
  step.group(4);
  const PolicyResult result = first_fit(step.build(kAdam));
  EXPECT_THAT(result.schedule.buckets, IsEmpty());
  EXPECT_THAT(result.report.front(), HasSubstr("no data-parallel reductions"));
}

TEST(SourceFirstFitTest, PL15AGradientOwedOverTwoProcessGroupsSwitchesFusionOff) {
  StepBuilder step;
  const GroupId a = step.group(2);
  const GroupId b = step.group(2);
  step.owe(step.backward("x", {{10, a}}).front(), b);
  const PolicyResult result = first_fit(step.build(kAdam));
  EXPECT_THAT(result.refusals, ElementsAre(HasSubstr("of which the source keeps the first")));
  // Both reductions are kept, and the loss gradient gets 1/2 x 1/2.
  EXPECT_THAT(members(result), ElementsAre(1, 1));
}

TEST(SourceFirstFitTest, PL21TheResultDependsOnTheProgramAlone) {
  const Program program = pairs(8, 1000);
  const PolicyResult first = first_fit(program, ":elements=6000");
  static_cast<void>(first_fit(layers(8, 1000)));
  EXPECT_EQ(first_fit(program, ":elements=6000").schedule, first.schedule);
}

TEST(SourceFirstFitTest, O2P18PI12GroupsARealisticListAsTheSourceDoes) {
  constexpr std::int64_t kHidden = 1024;
  StepBuilder step;
  const GroupId dp = step.group(8);
  std::int64_t elements = 0;
  std::size_t count = 0;
  const auto add = [&](std::int64_t size) {
    step.backward("g" + std::to_string(count++), {{size, dp}});
    elements += size;
  };
  const std::int64_t h = kHidden;
  add(h);
  add(h);
  for (int layer = 0; layer < 24; ++layer) {
    for (const std::int64_t size :
         {h, h, 4 * h * h, 4 * h, 4 * h * h, h, h, h, h * h, h, 3 * h * h, 3 * h}) {
      add(size);
    }
  }
  add(50304 * h);
  const Program program = step.build(kAdam);
  ASSERT_EQ(count, 291u);
  ASSERT_EQ(elements, 353'822'720);
  const auto buckets = [&](const std::string& cap) {
    return first_fit(program, ":elements=" + cap).schedule.buckets.size();
  };
  for (const auto& [cap, known] :
       std::vector<std::pair<std::string, std::size_t>>{{"1048576", 194},
                                                        {"4194304", 122},
                                                        {"6553600", 73},
                                                        {"26214400", 13},
                                                        {"50331648", 8},
                                                        {"1000000000", 1}}) {
    expect_oracle("O2 buckets of 291 gradients, cap " + cap + " elements", buckets(cap), known);
  }
}

}  // namespace
}  // namespace dovetail::schedule
