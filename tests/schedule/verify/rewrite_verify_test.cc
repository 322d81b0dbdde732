// The passes together: whatever a Schedule asks for, the lowered Program is legal or refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "schedule/lower/rewrite/scale.h"
#include "tests/schedule/lower/rewrite_programs.h"
#include "tests/schedule/policies/applied.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dovetail::schedule::rewrite_test {
namespace {

// Every choice that the passes look at.
std::vector<Schedule> all_choices() {
  std::vector<Schedule> all;
  for (const ScaleAt scale :
       {ScaleAt::Collective, ScaleAt::BeforeCollective, ScaleAt::AfterCollective,
        ScaleAt::LossGradient, ScaleAt::Optimizer}) {
    for (const std::int32_t k : {1, 2, 4}) {
      for (const SyncPoint sync :
           {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
        for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average}) {
          for (const Collective kind : {Collective::AllReduce, Collective::ReduceScatter}) {
            Schedule schedule = one_bucket(kind);
            schedule.policy = std::string(to_string(scale)) + " k=" + std::to_string(k) + " " +
                              std::string(to_string(sync)) + " " + std::string(to_string(op)) +
                              " " + std::string(to_string(kind));
            schedule.scale = scale;
            schedule.merge = {.micro_steps = k, .op = op, .sync = sync};
            schedule.buckets[0].mode = BucketMode::Copy;
            all.push_back(std::move(schedule));
          }
        }
      }
    }
  }
  return all;
}

TEST(RewriteVerifyTest, PI2EveryCombinationOfPassesIsLegal) {
  int legal = 0;
  for (const Schedule& schedule : all_choices()) {
    const Lowered lowered = lower(two_layers(), schedule);
    EXPECT_EQ(complaints(two_layers(), lowered.program, schedule), std::vector<std::string>{})
        << schedule.policy;
    ++legal;
  }
  EXPECT_EQ(legal, 5 * 3 * 3 * 2 * 2);  // places x k x sync points x sum or average x kinds
}

// Two layers with one weight: both gradients are reduced, then added in backward; the update reads
// the total.
Program shared_weight() {
  constexpr TensorId kTotal{10};
  Program program = two_layers();
  for (const TensorId id : {kB, kBGrad, kBState}) {
    program.tensors[static_cast<std::size_t>(id.value)].shape = {8};
  }
  program.tensors.push_back(tensor_of(kTotal, "total", TensorKind::Gradient, 8));
  ProgramEditor editor(std::move(program));
  editor.insert_after(kABackward,
                      {op_of(editor.new_op_id(), "copy", Phase::Backward, {kAGrad}, {kTotal},
                             Accumulate{true, Rational(1)}),
                       op_of(editor.new_op_id(), "add", Phase::Backward, {kBGrad, kTotal}, {kTotal},
                             Accumulate{false, Rational(1)})});
  editor.rename_use(kAUpdate, kAGrad, kTotal);
  editor.remove(kBUpdate);
  return std::move(editor).commit();
}

TEST(RewriteVerifyTest, PI2ASharedWeightIsLegalWhereItIsNotRefused) {
  int legal = 0;
  for (const Schedule& schedule : all_choices()) {
    const bool every =
        schedule.merge.micro_steps == 1 || schedule.merge.sync == SyncPoint::EveryMicroStep;
    // The update reads the total, which is none of the gradients that a factor could follow; and
    // the additions need whole gradients, in every micro-step.
    const bool refused = !every || schedule.scale == ScaleAt::Optimizer ||
                         schedule.buckets[0].collective == Collective::ReduceScatter;
    if (refused) {
      EXPECT_THROW(lower(shared_weight(), schedule), InputError) << schedule.policy;
      continue;
    }
    const Lowered lowered = lower(shared_weight(), schedule);
    EXPECT_EQ(complaints(shared_weight(), lowered.program, schedule), std::vector<std::string>{})
        << schedule.policy;
    ++legal;
  }
  // 4 places x 2 ops x (k = 1: 3 sync points, k = 2 and 4: one).
  EXPECT_EQ(legal, 4 * 2 * 5);
}

// b.grad lies 0..3 in bucket 3, 3..8 in bucket 4; the total is cut where b.grad is.
TEST(RewriteVerifyTest, PI7PartsOfASharedWeightAreFollowedIntoTheTotal) {
  for (const std::int32_t k : {1, 2}) {
    Schedule schedule = one_bucket();
    schedule.merge = {.micro_steps = k, .sync = SyncPoint::EveryMicroStep};
    schedule.buckets[0].mode = BucketMode::Copy;
    schedule.buckets[0].gradients[0] = Slice(kBGrad, 0, 3);
    Bucket rest = schedule.buckets[0];
    rest.id = BucketId{4};
    rest.gradients = {Slice(kBGrad, 3, 5)};
    schedule.buckets.push_back(rest);
    ScheduledProgram plan = lower(shared_weight(), schedule).program;
    EXPECT_EQ(complaints(shared_weight(), plan, schedule), std::vector<std::string>{}) << k;
    // Elements 3..8 stay in their bucket: only the other term of the total is reduced there.
    std::erase_if(plan.roles[0].commands, [](const Command& command) {
      const auto* copy = std::get_if<Copy>(&command.action);
      return copy != nullptr && copy->direction == CopyDirection::Unpack &&
             copy->bucket == BucketId{4};
    });
    const std::vector<Problem> problems = verify(shared_weight(), plan, schedule.merge);
    ASSERT_FALSE(problems.empty()) << k;
    EXPECT_EQ(problems.front().kind, ProblemKind::ReducedTooEarly) << problems.front().message;
  }
}

TEST(RewriteVerifyTest, A4A22FragmentsAndANormOverShardsAreLegal) {
  constexpr TensorId kNorm{10};
  Program program = two_layers();
  program.tensors.push_back(tensor_of(kNorm, "norm", TensorKind::Activation, 1));
  ProgramEditor editor(std::move(program));
  editor.insert_before(kBUpdate, {op_of(editor.new_op_id(), "norm", Phase::Optimizer,
                                        {kBGrad, kAGrad}, {kNorm}, GlobalNorm{})});
  program = std::move(editor).commit();
  for (Op& op : program.ops) {
    if (std::holds_alternative<Update>(op.effect)) op.reads.push_back(kNorm);
  }
  for (Schedule schedule : all_choices()) {
    if (schedule.buckets[0].collective != Collective::ReduceScatter) continue;
    if (schedule.merge.sync == SyncPoint::EveryMicroStep) continue;
    // a lies 0..4 behind b, 4..8 in a bucket of its own.
    Bucket rest = schedule.buckets[0];
    schedule.buckets[0].gradients[1] = Slice(kAGrad, 0, 4);
    rest.id = BucketId{4};
    rest.gradients = {Slice(kAGrad, 4, 4)};
    schedule.buckets.push_back(rest);
    for (const ParameterSync sync : {ParameterSync::AfterUpdate, ParameterSync::NextForward}) {
      schedule.parameters = sync;
      const Lowered lowered = lower(program, schedule);
      EXPECT_EQ(complaints(program, lowered.program, schedule), std::vector<std::string>{})
          << schedule.policy << ' ' << to_string(sync);
    }
  }
}

TEST(RewriteVerifyTest, PL14AFoldedFactorBesideAnAverageIsFound) {
  // What the passes avoid: the fill is scaled and the collective averages too.
  Schedule schedule = one_bucket();
  schedule.scale = ScaleAt::LossGradient;
  Lowered lowered = lower(two_layers(), schedule);
  for (Command& command : lowered.program.roles[0].commands) {
    if (auto* collective = std::get_if<Communicate>(&command.action)) {
      collective->reduce = ReduceOp::Average;
    }
  }
  EXPECT_FALSE(complaints(two_layers(), lowered.program, schedule).empty());
}

TEST(RewriteVerifyTest, GM9GML8ASumWithoutItsAverageIsFound) {
  Schedule schedule = one_bucket();
  schedule.merge = {.micro_steps = 2};
  Lowered lowered = lower(two_layers(), schedule);
  ASSERT_TRUE(complaints(two_layers(), lowered.program, schedule).empty());
  for (Op& op : lowered.program.program.ops) {
    if (auto* accumulate = std::get_if<Accumulate>(&op.effect)) accumulate->factor = Rational(1);
  }
  EXPECT_FALSE(complaints(two_layers(), lowered.program, schedule).empty());
}

}  // namespace
}  // namespace dovetail::schedule::rewrite_test
