// The symbolic values of gradients: contributions, groups and factors (PI2), and every way in which
// the source systems get them wrong.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/verify/verify_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::schedule::verify_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// Two layers of 4 and 6 parameters on two ranks, one bucket each; l1 is bucket 0.
struct Decisions {
  ScaleAt scale = ScaleAt::Collective;
  Merge merge = {};
  BucketMode mode = BucketMode::View;
};

ScheduledProgram plan(const Decisions& decisions) {
  const Program program = training({4, 6});
  Schedule schedule = buckets_of(program, {{"l1"}, {"l0"}});
  schedule.scale = decisions.scale;
  schedule.merge = decisions.merge;
  for (Bucket& bucket : schedule.buckets) bucket.mode = decisions.mode;
  ScheduledProgram result = lower(program, schedule).program;
  EXPECT_THAT(reasons(result), IsEmpty());
  return result;
}

TEST(VerifyValuesTest, PI2AScaleThatIsLeftOutIsTheWrongScale) {
  ScheduledProgram broken = plan({.scale = ScaleAt::AfterCollective});
  erase(broken, find<Scale>(broken));
  // l1 is summed over 2 ranks and never divided.
  EXPECT_THAT(reasons(broken),
              Contains(MatchesRegex("wrong scale: op l1.update .c[0-9]+. reads l1.grad scaled by "
                                    "1, but 1/2 is needed")));
}

TEST(VerifyValuesTest, PI2ASumThatNobodyDividesIsTheWrongReduction) {
  ScheduledProgram broken = plan({});
  std::get<Communicate>(commands_of(broken)[find<Communicate>(broken)].action).reduce =
      ReduceOp::Sum;
  EXPECT_THAT(reasons(broken),
              ElementsAre(MatchesRegex("wrong reduction: bucket 0: all-reduce .c[0-9]+. does not "
                                       "reduce l1.grad as it needs: average over dp"),
                          HasSubstr("reads l1.grad scaled by 1, but 1/2 is needed")));
}

TEST(VerifyValuesTest, PL14AnAverageWhoseLossIsScaledTooDividesTwice) {
  ScheduledProgram broken = plan({.scale = ScaleAt::LossGradient});
  std::get<Communicate>(commands_of(broken)[find<Communicate>(broken)].action).reduce =
      ReduceOp::Average;
  EXPECT_THAT(reasons(broken), ElementsAre(HasSubstr("reads l1.grad scaled by 1/4, but 1/2")));
}

TEST(VerifyValuesTest, PL16OneOfTwoLossesThatIsScaledAloneIsReported) {
  // l0's backward takes its gradient from l1's and from a second loss, which nobody scaled.
  ScheduledProgram broken = plan({.scale = ScaleAt::LossGradient});
  Program& program = broken.program;
  const TensorId second{100};
  program.tensors.push_back({.id = second, .name = "loss2.grad", .shape = {1}});
  const OpId fill{100};
  program.ops.push_back({.id = fill,
                         .name = "loss2.fill",
                         .phase = Phase::Backward,
                         .work = MemoryWork{},
                         .reads = {},
                         .writes = {second},
                         .effect = FillLossGradient{}});
  op_named(program, "l0.backward").reads.push_back(second);
  std::rotate(program.ops.begin(), program.ops.end() - 1, program.ops.end());
  auto& commands = commands_of(broken);
  commands.insert(commands.begin(), Command{CommandId{1000}, kComputeStream, RunOp{fill}});
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("wrong scale: op l0.backward combines gradients "
                                                  "of the loss with factors 1/2 and 1")));
}

TEST(VerifyValuesTest, GML4OneGradientScaledTwiceAndTheOtherNeverAreBothReported) {
  ScheduledProgram broken = plan({.scale = ScaleAt::AfterCollective});
  std::get<Scale>(commands_of(broken)[find<Scale>(broken, 1)].action).bucket = BucketId{0};
  const auto lines = reasons(broken);
  EXPECT_THAT(lines, Contains(HasSubstr("reads l1.grad scaled by 1/4, but 1/2 is needed")));
  EXPECT_THAT(lines, Contains(HasSubstr("reads l0.grad scaled by 1, but 1/2 is needed")));
}

TEST(VerifyValuesTest, P11AnUpdateThatRescalesAlreadyScaledGradientsIsReported) {
  ScheduledProgram broken = plan({});
  op_named(broken.program, "l1.update").effect = Update{.rescale = Rational(1, 2)};
  EXPECT_THAT(reasons(broken), ElementsAre(HasSubstr("l1.grad scaled by 1/4, but 1/2 is needed")));
}

// The fused buffer still holds the raw gradients of the last micro-step when the merged ones are
// read: replicas drift apart.
TEST(VerifyValuesTest, GML3ReducingTheRawBucketLeavesTheMergedGradientsUnreduced) {
  ScheduledProgram broken =
      plan({.merge = {.micro_steps = 2, .sync = SyncPoint::AfterLastMicroStep}});
  for (BucketLayout& bucket : broken.buckets) {
    for (BucketMember& member : bucket.members) {
      member.tensor = *broken.program.tensor(member.tensor).merges;
    }
  }
  EXPECT_THAT(reasons(broken),
              ElementsAre(MatchesRegex("read before reduced: op l1.update .c[0-9]+. reads "
                                       "l1.grad.merged before it holds the reduced value"),
                          HasSubstr("reads l0.grad.merged before it holds the reduced value")));
}

TEST(VerifyValuesTest, ASumThatForgetsTheFirstMicroStepIsReported) {
  ScheduledProgram broken = plan({.merge = {.micro_steps = 2, .op = ReduceOp::Sum}});
  Op& last = op_named(broken.program, "l1.grad.accumulate@1");
  last.effect = Accumulate{.overwrite = true, .factor = Rational()};
  last.reads = {tensor_named(broken.program, "l1.grad")};
  EXPECT_THAT(reasons(broken),
              ElementsAre(MatchesRegex("missing micro-step: op l1.update .c[0-9]+. reads "
                                       "l1.grad.merged, which holds 1 of 2 micro-steps of "
                                       "l1.grad")));
}

TEST(VerifyValuesTest, GM9TheAverageOverMicroStepsIsPartOfTheFactor) {
  ScheduledProgram broken = plan({.merge = {.micro_steps = 2}});
  std::get<Accumulate>(op_named(broken.program, "l1.grad.accumulate@1").effect).factor = Rational();
  EXPECT_THAT(reasons(broken), ElementsAre(HasSubstr("scaled by 1/2, but 1/4 is needed")));
}

TEST(VerifyValuesTest, AI2AMicroStepThatIsAddedTwiceIsReported) {
  // The second backward of l1 writes no gradient: the first one's is summed again.
  ScheduledProgram broken = plan({.merge = {.micro_steps = 2, .op = ReduceOp::Sum}});
  Op& backward = op_named(broken.program, "l1.backward");
  std::erase(backward.writes, tensor_named(broken.program, "l1.grad"));
  EXPECT_THAT(reasons(broken),
              Contains(MatchesRegex("reduced twice: op l1.grad.accumulate@1 .c[0-9]+. adds l1.grad "
                                    "to l1.grad.merged, which has that micro-step already")));
}

TEST(VerifyValuesTest, GM7AMicroStepThatIsNotReducedDoesNotMixWithOneThatIs) {
  ScheduledProgram broken = plan({.merge = {.micro_steps = 2, .sync = SyncPoint::EveryMicroStep}});
  // Collectives in order: l1, l0 of micro-step 0, then l1, l0 of micro-step 1.
  erase(broken, find<Communicate>(broken, 2));
  EXPECT_THAT(reasons(broken),
              Contains(MatchesRegex("reduced too early: op l1.grad.accumulate@1 .c[0-9]+. adds "
                                    "l1.grad to l1.grad.merged after its reduction")));
}

TEST(VerifyValuesTest, GM6MicroStepsWithDifferentFactorsDoNotAddUp) {
  ScheduledProgram broken = plan({.scale = ScaleAt::AfterCollective,
                                  .merge = {.micro_steps = 2, .sync = SyncPoint::EveryMicroStep}});
  erase(broken, find<Scale>(broken, 2));
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("wrong scale: op l1.grad.accumulate@1")));
}

TEST(VerifyValuesTest, GM9ASumThatGoesOnFromTheLastStepIsFoundInTheNextOne) {
  // Nobody zeroes the sum and the first accumulate adds to it: right once, wrong ever after.
  ScheduledProgram broken = plan({.merge = {.micro_steps = 2, .op = ReduceOp::Sum}});
  Op& first = op_named(broken.program, "l1.grad.accumulate@0");
  first.effect = Accumulate{};
  first.reads.push_back(tensor_named(broken.program, "l1.grad.merged"));
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("reduced twice: in the next step, op "
                                                  "l1.grad.accumulate@0")));
}

TEST(VerifyValuesTest, GM9ASumThatTheOptimizerZeroesGoesOnRightly) {
  ScheduledProgram zeroed = plan({.merge = {.micro_steps = 2, .op = ReduceOp::Sum}});
  const TensorId merged = tensor_named(zeroed.program, "l1.grad.merged");
  Op& first = op_named(zeroed.program, "l1.grad.accumulate@0");
  first.effect = Accumulate{};
  first.reads.push_back(merged);
  zeroed.program.ops.push_back({.id = OpId{500},
                                .name = "l1.zero",
                                .phase = Phase::Optimizer,
                                .work = MemoryWork{},
                                .reads = {},
                                .writes = {merged},
                                .effect = ZeroFill{}});
  commands_of(zeroed).push_back({CommandId{1000}, kComputeStream, RunOp{OpId{500}}});
  EXPECT_THAT(reasons(zeroed), IsEmpty());
}

TEST(VerifyValuesTest, PI4ABackwardOpThatReadsAGradientOfItsOwnRankIsReported) {
  // A second-order term: l0's backward reads the gradient of l1, which was written before.
  ScheduledProgram broken = plan({.mode = BucketMode::Copy});
  op_named(broken.program, "l0.backward").reads.push_back(tensor_named(broken.program, "l1.grad"));
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("read before reduced: op l0.backward")));
}

// SGD written as a sum: l1 := l1 + l1.grad, behind the reduction or before it.
TEST(VerifyValuesTest, PI2AParameterThatGradientsAreAddedToTakesThemReduced) {
  Program program = training({4, 6});
  const TensorId weight = tensor_named(program, "l1");
  Op& update = op_named(program, "l1.update");
  update.reads = {weight, tensor_named(program, "l1.grad")};
  update.writes = {weight};
  update.effect = Accumulate{};
  Schedule schedule = buckets_of(program, {{"l1"}, {"l0"}});
  EXPECT_THAT(reasons(lower(program, schedule).program), IsEmpty());
  schedule.buckets[0].launch = LaunchAfterOp{update.id};
  EXPECT_THAT(reasons(lower(program, schedule).program),
              Contains(MatchesRegex("read before reduced: op l1.update .c[0-9]+. reads l1.grad "
                                    "before it holds the reduced value")));
}

// l1.grad is copied, and backward makes something of the copy that is no sum.
TEST(VerifyValuesTest, PI4ACopyOfAGradientIsReadReducedToo) {
  Program program = training({4, 6});
  const TensorId copy{100};
  const TensorId made{101};
  program.tensors.push_back({.id = copy, .name = "copy", .shape = {6}});
  program.tensors.push_back({.id = made, .name = "made", .shape = {1}});
  const auto update = std::ranges::find(program.ops, Phase::Optimizer, &Op::phase);
  Op ops[] = {{.id = OpId{100},
               .name = "l1.copy",
               .phase = Phase::Backward,
               .work = MemoryWork{},
               .reads = {tensor_named(program, "l1.grad")},
               .writes = {copy},
               .effect = Accumulate{.overwrite = true, .factor = Rational()}},
              {.id = OpId{101},
               .name = "use",
               .phase = Phase::Backward,
               .work = MemoryWork{},
               .reads = {copy},
               .writes = {made}}};
  program.ops.insert(update, std::begin(ops), std::end(ops));
  op_named(program, "l1.update").reads.push_back(made);
  Schedule schedule = buckets_of(program, {{"l1"}, {"l0"}});
  EXPECT_THAT(reasons(lower(program, schedule).program), IsEmpty());
  schedule.buckets[0].launch = LaunchAfterBackward{};
  EXPECT_THAT(reasons(lower(program, schedule).program),
              ElementsAre(MatchesRegex("read before reduced: op use .c[0-9]+. reads copy before it "
                                       "holds the reduced value")));
}

TEST(VerifyValuesTest, AParameterThatIsZeroedIsWhole) {
  Program program = training({4, 6});
  program.ops.insert(program.ops.begin(), {.id = OpId{100},
                                           .name = "l1.zero",
                                           .phase = Phase::Forward,
                                           .work = MemoryWork{},
                                           .reads = {},
                                           .writes = {tensor_named(program, "l1")},
                                           .effect = ZeroFill{}});
  EXPECT_THAT(reasons(lower(program, buckets_of(program, {{"l1"}, {"l0"}})).program), IsEmpty());
}

TEST(VerifyValuesTest, PI2TheOptimizerMayScaleWhatItReadsInPlace) {
  // A clip op reads and writes the reduced gradient; the update then reads what clip left.
  ScheduledProgram clipped = plan({});
  const TensorId gradient = tensor_named(clipped.program, "l1.grad");
  const auto update = std::ranges::find(clipped.program.ops, "l1.update", &Op::name);
  clipped.program.ops.insert(update, {.id = OpId{500},
                                      .name = "clip",
                                      .phase = Phase::Optimizer,
                                      .work = MemoryWork{},
                                      .reads = {gradient},
                                      .writes = {gradient}});
  const std::size_t at = run_of(clipped, "l1.update");
  commands_of(clipped).insert(commands_of(clipped).begin() + static_cast<std::ptrdiff_t>(at),
                              Command{CommandId{1000}, kComputeStream, RunOp{OpId{500}}});
  EXPECT_THAT(reasons(clipped), IsEmpty());
}

}  // namespace
}  // namespace dovetail::schedule::verify_test
