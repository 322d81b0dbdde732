// Micro-steps: where sums are formed, reduced and waited for (rules GM).
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "schedule/verify/verify.h"
#include "tests/schedule/lower/lower_words.h"

namespace dovetail::schedule {
namespace {

Schedule merged_schedule(const Program& program, SyncPoint sync, std::int32_t micro_steps,
                         const std::string& policy = "per-tensor") {
  Schedule schedule = schedule_of(program, policy);
  schedule.merge.micro_steps = micro_steps;
  schedule.merge.sync = sync;
  return schedule;
}

// Each micro-step reduces its gradient and then adds it: the wait stands before the accumulate, and
// the next micro-step writes the gradient only after that.
TEST(LowerMergeTest, GM7EveryMicroStepReducesItsGradientsBeforeItAddsThem) {
  const Program program = layers(1);
  const ScheduledProgram result =
      lower(program, merged_schedule(program, SyncPoint::EveryMicroStep, 2)).program;
  EXPECT_EQ(words(result),
            "0:l0.forward@0 0:l0.backward@0 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:wait1 0:l0.grad.accumulate@0 "
            "0:l0.forward 0:l0.backward 0:record2 1:wait2 1:all-reduce0 1:record3 "
            "0:wait3 0:l0.grad.accumulate@1 0:l0.update ");
  EXPECT_EQ(result.program.tensor(result.buckets[0].members[0].tensor).name, "l0.grad");
}

TEST(LowerMergeTest, GM7TheCollectiveOfOneGradientOverlapsTheBackwardOfTheNext) {
  const Program program = layers(2);
  EXPECT_EQ(words(lower(program, merged_schedule(program, SyncPoint::EveryMicroStep, 2)).program),
            "0:l0.forward@0 0:l1.forward@0 "
            "0:l1.backward@0 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l0.backward@0 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait1 0:l1.grad.accumulate@0 0:wait3 0:l0.grad.accumulate@0 "
            "0:l0.forward 0:l1.forward 0:l1.backward 0:record4 1:wait4 1:all-reduce0 1:record5 "
            "0:l0.backward 0:record6 1:wait6 1:all-reduce1 1:record7 "
            "0:wait5 0:l1.grad.accumulate@1 0:wait7 0:l0.grad.accumulate@1 "
            "0:l1.update 0:l0.update ");
}

// Nothing overlaps backward: both sums travel behind the last op of backward.
TEST(LowerMergeTest, GM8AfterTheLastMicroStepTheSumsTravelTogether) {
  const Program program = layers(2);
  const ScheduledProgram result =
      lower(program, merged_schedule(program, SyncPoint::AfterLastMicroStep, 2)).program;
  EXPECT_EQ(words(result),
            "0:l0.forward@0 0:l1.forward@0 0:l1.backward@0 0:l1.grad.accumulate@0 "
            "0:l0.backward@0 0:l0.grad.accumulate@0 "
            "0:l0.forward 0:l1.forward 0:l1.backward 0:l1.grad.accumulate@1 "
            "0:l0.backward 0:l0.grad.accumulate@1 "
            "0:record0 1:wait0 1:all-reduce0 1:record1 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait1 0:l1.update 0:wait3 0:l0.update ");
  EXPECT_EQ(result.program.tensor(result.buckets[0].members[0].tensor).name, "l1.grad.merged");
}

// Without overlap each micro-step's gradients travel behind its backward, and are then added.
TEST(LowerMergeTest, GM7WithoutOverlapEveryMicroStepReducesBehindItsBackward) {
  const Program program = layers(2);
  const Schedule schedule = merged_schedule(program, SyncPoint::EveryMicroStep, 2,
                                            "no-overlap-per-tensor:wait=end-of-backward");
  const Lowered result = lower(program, schedule);
  EXPECT_EQ(words(result.program),
            "0:l0.forward@0 0:l1.forward@0 0:l1.backward@0 0:l0.backward@0 "
            "0:record0 1:wait0 1:all-reduce0 1:record1 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait1 0:wait3 0:l1.grad.accumulate@0 0:l0.grad.accumulate@0 "
            "0:l0.forward 0:l1.forward 0:l1.backward 0:l0.backward "
            "0:record4 1:wait4 1:all-reduce0 1:record5 0:record6 1:wait6 1:all-reduce1 1:record7 "
            "0:wait5 0:wait7 0:l1.grad.accumulate@1 0:l0.grad.accumulate@1 "
            "0:l1.update 0:l0.update ");
  EXPECT_EQ(verify(program, result.program, schedule.merge), std::vector<Problem>{});
}

// In the last micro-step the accumulate is the producer: l1's sum travels beside l0's backward.
TEST(LowerMergeTest, GM14InTheLastMicroStepEachSumTravelsAsSoonAsItIsComplete) {
  const Program program = layers(2);
  EXPECT_EQ(words(lower(program, merged_schedule(program, SyncPoint::LastMicroStep, 2)).program),
            "0:l0.forward@0 0:l1.forward@0 0:l1.backward@0 0:l1.grad.accumulate@0 "
            "0:l0.backward@0 0:l0.grad.accumulate@0 "
            "0:l0.forward 0:l1.forward 0:l1.backward 0:l1.grad.accumulate@1 "
            "0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l0.backward 0:l0.grad.accumulate@1 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait1 0:l1.update 0:wait3 0:l0.update ");
}

TEST(LowerMergeTest, CopyModePacksTheSumBehindTheLastAccumulate) {
  const Program program = layers(1);
  const Schedule schedule =
      merged_schedule(program, SyncPoint::LastMicroStep, 2, "per-tensor:mode=copy");
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward@0 0:l0.backward@0 0:l0.grad.accumulate@0 "
            "0:l0.forward 0:l0.backward 0:l0.grad.accumulate@1 0:pack0 "
            "0:record0 1:wait0 1:all-reduce0 1:record1 0:wait1 0:unpack0 0:l0.update ");
}

// In copy mode each micro-step packs, reduces, unpacks and adds.
TEST(LowerMergeTest, CopyModeReusesABucketInEveryMicroStep) {
  const Program program = layers(1);
  const Schedule schedule =
      merged_schedule(program, SyncPoint::EveryMicroStep, 2, "per-tensor:mode=copy");
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward@0 0:l0.backward@0 0:pack0 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:wait1 0:unpack0 0:l0.grad.accumulate@0 "
            "0:l0.forward 0:l0.backward 0:pack0 0:record2 1:wait2 1:all-reduce0 1:record3 "
            "0:wait3 0:unpack0 0:l0.grad.accumulate@1 0:l0.update ");
}

// GM13: k = 4 micro-steps, N = 4 gradients: 16 reductions per update, or 4.
TEST(LowerMergeTest, GM13GMI7CollectivesPerUpdate) {
  const Program program = layers(4);
  const auto collectives = [&](SyncPoint sync, const std::string& policy) {
    return count(lower(program, merged_schedule(program, sync, 4, policy)).program,
                 Collective::AllReduce);
  };
  EXPECT_EQ(collectives(SyncPoint::EveryMicroStep, "per-tensor"), 16);
  EXPECT_EQ(collectives(SyncPoint::AfterLastMicroStep, "per-tensor"), 4);
  EXPECT_EQ(collectives(SyncPoint::LastMicroStep, "per-tensor"), 4);
  // ... and with M = 1 bucket k M, M, M.
  EXPECT_EQ(collectives(SyncPoint::EveryMicroStep, "one-bucket"), 4);
  EXPECT_EQ(collectives(SyncPoint::AfterLastMicroStep, "one-bucket"), 1);
  EXPECT_EQ(collectives(SyncPoint::LastMicroStep, "one-bucket"), 1);
}

// Expectation: the bucket asks to follow l0's backward; so it does in both micro-steps.
TEST(LowerMergeTest, ALaunchAfterAnOpMeansItsRepetitionInEveryMicroStep) {
  const Program program = layers(2);
  Schedule schedule = merged_schedule(program, SyncPoint::EveryMicroStep, 2);
  schedule.buckets.resize(1);  // l1.grad
  schedule.buckets[0].launch = LaunchAfterOp{program.ops[3].id};
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward@0 0:l1.forward@0 0:l1.backward@0 "
            "0:l0.backward@0 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:wait1 0:l1.grad.accumulate@0 0:l0.grad.accumulate@0 "
            "0:l0.forward 0:l1.forward 0:l1.backward "
            "0:l0.backward 0:record2 1:wait2 1:all-reduce0 1:record3 "
            "0:wait3 0:l1.grad.accumulate@1 0:l0.grad.accumulate@1 0:l1.update 0:l0.update ");
}

// k = 2 of 4 ranks: the sum of a bucket owes 1/4 for the ranks and 1/2 for the micro-steps.
TEST(LowerMergeTest, TheScaleOfABucketHoldsTheFactorOfTheMicroSteps) {
  const Program program = layers(1, 4);
  Schedule schedule = merged_schedule(program, SyncPoint::LastMicroStep, 2);
  schedule.scale = ScaleAt::AfterCollective;
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward@0 0:l0.backward@0 0:l0.grad.accumulate@0 "
            "0:l0.forward 0:l0.backward 0:l0.grad.accumulate@1 "
            "0:record0 1:wait0 1:all-reduce0+ 1:scale0x1/8 1:record1 0:wait1 0:l0.update ");
}

TEST(LowerMergeTest, AveragingCollectivesLeaveTheFactorToTheLastAccumulate) {
  const Program program = layers(1, 4);
  const ScheduledProgram result =
      lower(program, merged_schedule(program, SyncPoint::LastMicroStep, 2)).program;
  std::vector<Rational> factors;
  for (const Op& op : result.program.ops) {
    if (const auto* add = std::get_if<Accumulate>(&op.effect)) factors.push_back(add->factor);
  }
  EXPECT_EQ(factors, (std::vector<Rational>{Rational(1), Rational(1, 2)}));
}

TEST(LowerMergeTest, GMI9OneMicroStepIsTheUnmergedProgram) {
  const Program program = layers(3);
  for (const SyncPoint sync :
       {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
    const Lowered unmerged = lower(program, schedule_of(program, "per-tensor"));
    const Lowered result = lower(program, merged_schedule(program, sync, 1));
    EXPECT_EQ(result.program, unmerged.program);
    EXPECT_EQ(result.report, unmerged.report);
  }
}

TEST(LowerMergeTest, P8GM12EachPassLeavesALineInItsOrder) {
  const Program program = layers(2);
  const auto report = lower(program, merged_schedule(program, SyncPoint::LastMicroStep, 2)).report;
  ASSERT_EQ(report.size(), 6u);
  EXPECT_EQ(report[0].pass, LoweringPass::Merge);
  EXPECT_EQ(report[1].pass, LoweringPass::Scale);
  EXPECT_EQ(to_string(report[2]), "lay out: 2 gradients in 2 buckets, 1.17 KiB, padding 0 B");
  EXPECT_EQ(to_string(report[3]), "launch: 1 of 2 collectives before backward ends");
  EXPECT_EQ(report[4].pass, LoweringPass::Wait);
  EXPECT_EQ(report[5].pass, LoweringPass::Emit);
}

TEST(LowerMergeTest, RefusesFewerMicroStepsThanOne) {
  const Program program = layers(1);
  EXPECT_THROW(lower(program, merged_schedule(program, SyncPoint::LastMicroStep, 0)), InputError);
}

}  // namespace
}  // namespace dovetail::schedule
