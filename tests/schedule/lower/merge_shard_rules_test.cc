// Rules of gradient merge and of sharded updates as whole Schedules show them: over which groups,
// in which order, how often, in whose memory.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/schedule/policies/applied.h"
#include "tests/support/step_builder.h"

namespace dovetail::schedule {
namespace {

using dovetail::testing::StepBuilder;
using ::testing::ElementsAre;
using ::testing::SizeIs;

const Effect kAdam = Update{};

ScheduledProgram legal(const Program& program, const std::string& policy) {
  const Schedule schedule = applied(program, policy).schedule;
  ScheduledProgram lowered = lower(program, schedule).program;
  for (const Problem& problem : verify(program, lowered, schedule.merge)) {
    ADD_FAILURE() << policy << ": " << problem.message;
  }
  return lowered;
}

std::vector<Communicate> collectives(const ScheduledProgram& plan, Collective kind) {
  std::vector<Communicate> found;
  for (const Command& command : plan.roles.front().commands) {
    const auto* run = bucket_collective(command);
    if (run != nullptr && run->kind == kind) found.push_back(*run);
  }
  return found;
}

std::vector<std::int32_t> bucket_numbers(const std::vector<Communicate>& runs) {
  std::vector<std::int32_t> numbers;
  for (const Communicate& run : runs) numbers.push_back(run.bucket->value);
  return numbers;
}

// Ten gradients of 64 elements over 2 ranks: with a cap of 512 bytes five buckets of two.
Program ten_gradients() {
  StepBuilder step;
  const GroupId dp = step.group(2);
  for (int i = 0; i < 10; ++i) step.backward("l" + std::to_string(i), {{64, dp}});
  return step.build(kAdam);
}

// Two data-parallel worlds in one job. No list says which gradient belongs to which: the debts do.
TEST(MergeRulesTest, GM10EachMergedGradientIsReducedOverItsOwnGroup) {
  StepBuilder step;
  const GroupId a = step.group(4);
  const GroupId b = step.group(4);
  step.backward("x", {{10, a}});
  step.backward("y", {{10, b}});
  Program program = step.build(kAdam);
  program.groups[1].instance_size = 2;  // b: the pairs {0, 1} and {2, 3}
  for (const std::string sync : {"every", "after", "last"}) {
    const ScheduledProgram plan = legal(program, "gradient-merge:k=3,sync=" + sync);
    const std::vector<Communicate> runs = collectives(plan, Collective::AllReduce);
    ASSERT_THAT(runs, SizeIs(sync == "every" ? 6 : 2));
    for (const Communicate& run : runs) {
      const TensorId member = plan.bucket(*run.bucket).members.front().tensor;
      const bool first = plan.program.tensor(member).name.starts_with("x.0");
      EXPECT_EQ(run.group, first ? a : b) << sync;
    }
  }
}

// A step of a plan is k micro-steps and their update, so no remainder can be lost.
TEST(MergeRulesTest, GML6EveryStepEndsWithItsUpdate) {
  for (int k = 1; k <= 5; ++k) {
    const ScheduledProgram plan =
        legal(ten_gradients(), "gradient-merge:k=" + std::to_string(k) + ",sync=last");
    EXPECT_EQ(plan.program.micro_steps, k);
    EXPECT_EQ(plan.program.ops.back().phase, Phase::Optimizer);
    EXPECT_EQ(std::ranges::count(plan.program.ops, Phase::Optimizer, &Op::phase), 10);
  }
}

// What a micro-step that is not due could change of the model: nothing.
TEST(MergeRulesTest, GMI3NoMicroStepWritesParametersOrState) {
  for (const std::string sync : {"every", "after", "last"}) {
    const ScheduledProgram plan = legal(ten_gradients(), "gradient-merge:k=4,sync=" + sync);
    for (const Op& op : plan.program.ops) {
      if (op.phase == Phase::Optimizer) continue;
      for (const TensorId id : op.writes) {
        EXPECT_NE(plan.program.tensor(id).kind, TensorKind::Parameter) << op.name;
        EXPECT_NE(plan.program.tensor(id).kind, TensorKind::OptimizerState) << op.name;
      }
    }
  }
}

// Shards in one group and replicas in a second; a third has no part to play.
TEST(ShardRulesTest, A1OneGroupHoldsTheShardsAndAtMostOneTheReplicas) {
  StepBuilder step;
  const GroupId shards = step.group(2);
  const GroupId replicas = step.group(4);
  const GroupId third = step.group(8);
  const TensorId x = step.backward("x", {{64, shards}}).front();
  step.owe(x, replicas);
  step.owe(x, third);
  EXPECT_EQ(applied(step.build(kAdam), "sharded").failure,
            "a gradient needs more than two reductions");
}

// The parameters are listed in forward order; the buckets fill in the order of the gradients.
TEST(ShardRulesTest, A3BucketsAreFilledInTheOrderInWhichGradientsAreReady) {
  const Program program = ten_gradients();
  std::vector<std::string> order;
  for (const Bucket& bucket : applied(program, "sharded:cap=512B").schedule.buckets) {
    for (const Slice& slice : bucket.gradients) {
      order.push_back(program.tensor(slice.tensor).name);
    }
  }
  EXPECT_THAT(order, ElementsAre("l0.0", "l1.0", "l2.0", "l3.0", "l4.0", "l5.0", "l6.0", "l7.0",
                                 "l8.0", "l9.0"));
}

// B = 5 buckets: 5 reduce-scatters per step, also with 3 micro-steps, in ascending order.
TEST(ShardRulesTest, A12AI5BucketsAreReducedInAscendingOrderOncePerStep) {
  const Program program = ten_gradients();
  for (const std::string options : {"p=1", "p=2", "p=3", "p=2,k=3", "p=2,tail=last-gradient"}) {
    const ScheduledProgram plan = legal(program, "sharded:cap=512B," + options);
    const std::vector<std::int32_t> order =
        bucket_numbers(collectives(plan, Collective::ReduceScatter));
    EXPECT_THAT(order, SizeIs(5)) << options;
    EXPECT_TRUE(std::ranges::is_sorted(order)) << options;
    EXPECT_EQ(std::ranges::adjacent_find(order), order.end()) << options;  // once each
  }
}

// Producers write straight into the buckets: no gradient is packed.
TEST(ShardRulesTest, A21InViewModeGradientsLiveInTheBuckets) {
  const Program program = ten_gradients();
  const auto packs = [&](const std::string& mode) {
    const ScheduledProgram plan = legal(program, "sharded:cap=512B,mode=" + mode);
    return std::ranges::count_if(plan.roles.front().commands, [](const Command& command) {
      const auto* copy = std::get_if<Copy>(&command.action);
      return copy != nullptr && copy->direction == CopyDirection::Pack;
    });
  };
  EXPECT_EQ(packs("view"), 0);
  EXPECT_EQ(packs("copy"), 10);
}

}  // namespace
}  // namespace dovetail::schedule
