// The Program within a plan against the one that the user gave: debts, ops, operands, shards.
//
// Every change here is one that a wrong rewrite could make consistently, so that the plan's own
// Program and commands agree with each other.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/verify/verify_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::schedule::verify_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Merge kFour = {.micro_steps = 4};

struct Planned {
  Program original;
  Schedule schedule;
  ScheduledProgram plan;

  [[nodiscard]] std::vector<std::string> reasons() const {
    return verify_test::reasons(original, plan, schedule.merge);
  }
};

// Two layers on four ranks, one bucket each.
Planned planned(const Merge& merge, Collective collective = Collective::AllReduce) {
  Planned result{.original = training({8, 8}, 4), .schedule = {}, .plan = {}};
  result.schedule = buckets_of(result.original, {{"l1", "l0"}});
  result.schedule.merge = merge;
  for (Bucket& bucket : result.schedule.buckets) bucket.collective = collective;
  result.plan = lower(result.original, result.schedule).program;
  EXPECT_THAT(result.reasons(), IsEmpty());
  return result;
}

// Of the plan's own Program alone: the fault is consistent, nothing within the plan shows it.
void expect_consistent(const Planned& wrong) {
  EXPECT_THAT(reasons(wrong.plan.program, wrong.plan), IsEmpty());
}

TEST(VerifyKeptTest, AReductionThatIsDroppedIsMissed) {
  Planned wrong = planned({});
  wrong.plan.program.reductions.erase(wrong.plan.program.reductions.begin());
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("other program: program: gradient l1.grad does "
                                                  "not need the reductions that the original")));
}

// The bucket without l1, and l1 without a debt: every rank would update with its own gradient.
TEST(VerifyKeptTest, AReductionThatIsDroppedWithItsBucketIsMissed) {
  Planned wrong = planned({});
  Program fewer = wrong.original;
  fewer.reductions.erase(fewer.reductions.begin());
  wrong.plan = lower(fewer, buckets_of(fewer, {{"l0"}})).program;
  expect_consistent(wrong);
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("gradient l1.grad does not need")));
}

// Four micro-steps: 1/4 owed in place of 1/16, and applied twice in the last sum.
TEST(VerifyKeptTest, AFactorThatIsAppliedTwiceAndOwedTwiceIsNoticed) {
  Planned wrong = planned(kFour);
  for (Reduction& reduction : wrong.plan.program.reductions) {
    reduction.scale = reduction.scale / Rational(4);
  }
  for (Op& op : wrong.plan.program.ops) {
    auto* sum = std::get_if<Accumulate>(&op.effect);
    if (sum != nullptr && sum->factor != Rational()) sum->factor = sum->factor / Rational(4);
  }
  expect_consistent(wrong);
  EXPECT_THAT(wrong.reasons(),
              Contains("other program: program: gradient l1.grad needs 1/64 of its "
                       "sum, but the original needs 1/16"));
}

TEST(VerifyKeptTest, AnAverageThatBecomesASumIsNoticed) {
  Planned wrong = planned({});
  Program other = wrong.original;
  for (Reduction& reduction : other.reductions) reduction.op = ReduceOp::Sum;
  wrong.plan = lower(other, wrong.schedule).program;
  expect_consistent(wrong);
  EXPECT_THAT(wrong.reasons(),
              Contains(HasSubstr("l0.grad does not need the reductions that the original")));
}

// Micro-steps that are summed where an average is asked for, and fewer of them than asked for.
TEST(VerifyKeptTest, MicroStepsAreCombinedAsTheScheduleAsks) {
  Planned wrong = planned({.micro_steps = 4, .op = ReduceOp::Sum});
  wrong.schedule.merge = kFour;
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("l1.grad needs 1/4 of its sum, but the original "
                                                  "needs 1/16")));
  wrong = planned({.micro_steps = 2});
  wrong.schedule.merge = kFour;
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("has 2 micro-steps, but 4 are asked for")));
  wrong.schedule.merge = {};
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("has 2 micro-steps, but 1 are asked for")));
}

TEST(VerifyKeptTest, AnUpdateThatIsLeftOutIsMissed) {
  Planned wrong = planned({});
  const OpId gone = op_named(wrong.plan.program, "l0.update").id;
  erase(wrong.plan, run_of(wrong.plan, "l0.update"));
  std::erase_if(wrong.plan.program.ops, [&](const Op& op) { return op.id == gone; });
  EXPECT_THAT(wrong.reasons(), Contains("other program: program: op l0.update is missing: sharded "
                                        "updates take 0 of 8 elements of l0.grad"));
}

TEST(VerifyKeptTest, AMicroStepWithoutAnOpIsMissed) {
  Planned wrong = planned(kFour);
  Op& backward = op_named(wrong.plan.program, "l0.forward@2");
  backward.name = "something else";
  EXPECT_THAT(wrong.reasons(),
              AllOf(Contains(HasSubstr("op l0.forward is missing in micro-step 2")),
                    Contains(HasSubstr("op something else is not of the original"))));
}

// The update of l0 reads l1's gradient: both are there, reduced and scaled as owed.
TEST(VerifyKeptTest, AnUpdateWithAnotherGradientIsNoticed) {
  for (const Merge& merge : {Merge{}, kFour}) {
    Planned wrong = planned(merge);
    const std::string kept = merge.micro_steps > 1 ? ".grad.merged" : ".grad";
    Op& update = op_named(wrong.plan.program, "l0.update");
    std::ranges::replace(update.reads, tensor_named(wrong.plan.program, "l0" + kept),
                         tensor_named(wrong.plan.program, "l1" + kept));
    EXPECT_THAT(wrong.reasons(),
                Contains("other program: program: op l0.update is not what the original computes"));
  }
}

// Both parameters have eight elements, so that the buckets are still cut alike.
TEST(VerifyKeptTest, ShardsOfAnotherParameterAreNoticed) {
  Planned wrong = planned({}, Collective::ReduceScatter);
  for (BucketLayout& bucket : wrong.plan.buckets) {
    const TensorId first = bucket.members[0].tensor;
    if (wrong.original.tensor(first).kind != TensorKind::Parameter) continue;
    std::swap(bucket.members[0].tensor, bucket.members[1].tensor);
  }
  EXPECT_THAT(wrong.reasons(),
              Contains(HasSubstr("updates l0 with l1.grad, which the original does not")));
}

TEST(VerifyKeptTest, AShardedUpdateWithoutItsStateIsNoticed) {
  Planned wrong = planned({}, Collective::ReduceScatter);
  const TensorId state = tensor_named(wrong.original, "l1.state");
  Op& update = op_named(wrong.plan.program, "bucket0.update");
  std::erase(update.reads, state);
  std::erase(update.writes, state);
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("bucket0.update leaves out l1.state of l1.upd")));
}

TEST(VerifyKeptTest, AnOpThatOverwritesAParameterIsNotOfTheOriginal) {
  Planned wrong = planned({});
  Op added = op_named(wrong.plan.program, "l0.update");
  added.id = OpId{1000};
  added.name = "decay";
  wrong.plan.program.ops.push_back(added);
  Command run{CommandId{1000}, kComputeStream, RunOp{added.id}};
  commands_of(wrong.plan).push_back(run);
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("op decay is not of the original")));
}

TEST(VerifyKeptTest, AnotherTensorOrGroupOrWorldIsNoticed) {
  Planned wrong = planned({});
  wrong.plan.program.tensors[0].dtype = DType::F16;
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("tensor l0 is not as given")));
  wrong = planned({});
  wrong.plan.program.groups[0].name = "pp";
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("process group dp is not as given")));
  wrong = planned({});
  wrong.plan.program.world_size = 8;
  EXPECT_THAT(wrong.reasons(), Contains(HasSubstr("for 8 ranks in 1 stages, the original for 4")));
}

TEST(VerifyKeptTest, SumsInAnotherDtypeThanAskedForAreNoticed) {
  Planned wrong = planned({.micro_steps = 4, .dtype = DType::F32});
  wrong.schedule.merge.dtype = DType::F64;
  EXPECT_THAT(wrong.reasons(),
              Contains(HasSubstr("l1.grad.merged is not the sum of one gradient")));
}

}  // namespace
}  // namespace dovetail::schedule::verify_test
