// Folding the factors of averages into loss fills, updates, sums, or leaving them to the buckets.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/rewrite/scale.h"

#include "schedule/lower/rewrite/merge.h"
#include "tests/schedule/lower/rewrite_programs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dovetail::schedule::rewrite_test {
namespace {

Folded folded(Program program, ScaleAt scale, const Merge& merge = {}) {
  Schedule schedule = one_bucket();
  schedule.scale = scale;
  schedule.merge = merge;
  Program repeated = applied<Rewritten>(merge_micro_steps(std::move(program), merge)).program;
  return applied<Folded>(fold_scaling(std::move(repeated), schedule));
}

Rational loss_value(const Program& program, const std::string& op) {
  return std::get<FillLossGradient>(op_called(program, op).effect).value;
}
Rational rescale(const Program& program, OpId op) {
  return *std::get<Update>(program.op(op).effect).rescale;
}

// b.grad over dp (4 ranks), a.grad over a pair: degrees 4 and 2.
Program two_degrees() {
  Program program = two_layers();
  program.groups.push_back({GroupId{1}, "pair", {Rank{0}, Rank{1}}});
  program.reductions[1].group = GroupId{1};
  return program;
}

// Adam: updates without a rescale factor.
Program with_adam(Program program) {
  for (Op& op : program.ops) {
    if (auto* update = std::get_if<Update>(&op.effect)) update->rescale.reset();
  }
  return program;
}

TEST(ScaleTest, CollectivesThatAverageLeaveTheProgramAlone) {
  const Folded result = folded(two_layers(), ScaleAt::Collective);
  EXPECT_EQ(result.program, two_layers());
  EXPECT_EQ(result.left.at(kAGrad), Rational(1));
  EXPECT_EQ(reduce_op(ReduceOp::Average, ScaleAt::Collective), ReduceOp::Average);
}

TEST(ScaleTest, P13ScalesThatStayAreLeftToTheBuckets) {
  for (const ScaleAt scale : {ScaleAt::BeforeCollective, ScaleAt::AfterCollective}) {
    const Folded result = folded(two_degrees(), scale);
    EXPECT_EQ(result.program, two_degrees());
    EXPECT_EQ(result.left.at(kBGrad), Rational(1, 4));
    EXPECT_EQ(result.left.at(kAGrad), Rational(1, 2));
  }
}

TEST(ScaleTest, PL14FoldedAveragesAreSums) {
  // An averaging collective beside a folded factor would divide by the degree twice.
  for (const ScaleAt scale : {ScaleAt::BeforeCollective, ScaleAt::AfterCollective,
                              ScaleAt::LossGradient, ScaleAt::Optimizer}) {
    EXPECT_EQ(reduce_op(ReduceOp::Average, scale), ReduceOp::Sum);
  }
}

TEST(ScaleTest, P10OneDegreeGoesIntoTheLossFill) {
  const Folded result = folded(two_layers(), ScaleAt::LossGradient);
  EXPECT_EQ(loss_value(result.program, "loss.fill"), Rational(1, 4));
  EXPECT_EQ(result.left.at(kAGrad), Rational(1));
  EXPECT_EQ(result.report, "folded into 1 loss fill");
}

TEST(ScaleTest, P10AFillThatIsNotOneIsMultiplied) {
  Program program = two_layers();
  std::get<FillLossGradient>(program.ops[2].effect).value = Rational(1024);
  EXPECT_EQ(loss_value(folded(program, ScaleAt::LossGradient).program, "loss.fill"), Rational(256));
}

TEST(ScaleTest, PL16EveryLossFillIsScaled) {
  Program program = two_layers();
  ProgramEditor editor(std::move(program));
  editor.insert_after(kFill, {op_of(editor.new_op_id(), "second.fill", Phase::Backward, {kBOut},
                                    {kLossGrad}, FillLossGradient{Rational(1, 2)})});
  const Folded result = folded(std::move(editor).commit(), ScaleAt::LossGradient);
  EXPECT_EQ(loss_value(result.program, "loss.fill"), Rational(1, 4));
  EXPECT_EQ(loss_value(result.program, "second.fill"), Rational(1, 8));
}

TEST(ScaleTest, PL15TwoReductionsOfAGradientMultiply) {
  // Both gradients over two groups of 2: 1/2 * 1/2.
  Program program = two_layers();
  program.groups[0].instance_size = 2;
  program.groups.push_back({GroupId{1}, "across", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  program.reductions.push_back({kBGrad, GroupId{1}, ReduceOp::Average});
  program.reductions.push_back({kAGrad, GroupId{1}, ReduceOp::Average});
  EXPECT_EQ(loss_value(folded(program, ScaleAt::LossGradient).program, "loss.fill"),
            Rational(1, 4));
  EXPECT_EQ(rescale(folded(program, ScaleAt::Optimizer).program, kAUpdate), Rational(1, 4));
  EXPECT_EQ(folded(program, ScaleAt::AfterCollective).left.at(kAGrad), Rational(1, 4));
}

TEST(ScaleTest, P9DifferentDegreesCannotGoIntoTheLossFill) {
  EXPECT_EQ(cannot_fold(two_degrees(), ScaleAt::LossGradient),
            "gradients need different factors: b.grad 1/4, a.grad 1/2");
}

TEST(ScaleTest, P9WithoutALossFillNothingGoesThere) {
  Program program = two_layers();
  program.ops[2].effect = Opaque{};
  EXPECT_EQ(cannot_fold(program, ScaleAt::LossGradient),
            "no op is known to fill the gradient of the loss");
  EXPECT_EQ(cannot_fold(program, ScaleAt::Optimizer), std::nullopt);
}

TEST(ScaleTest, P9AGradientThatOwesNothingKeepsTheLossFillAsItIs) {
  Program program = two_layers();
  program.reductions.pop_back();
  EXPECT_EQ(cannot_fold(program, ScaleAt::LossGradient),
            "gradient a.grad needs no reduction, but would be scaled with the others");
}

TEST(ScaleTest, P11DifferentDegreesGoIntoTheUpdates) {
  const Folded result = folded(two_degrees(), ScaleAt::Optimizer);
  EXPECT_EQ(rescale(result.program, kBUpdate), Rational(1, 4));
  EXPECT_EQ(rescale(result.program, kAUpdate), Rational(1, 2));
  EXPECT_EQ(loss_value(result.program, "loss.fill"), Rational(1));
  EXPECT_EQ(result.left.at(kAGrad), Rational(1));
}

TEST(ScaleTest, P11AnOptimizerWithoutRescaleIsRefused) {
  EXPECT_EQ(cannot_fold(with_adam(two_degrees()), ScaleAt::Optimizer),
            "optimizer op b.update has no rescale factor");
}

TEST(ScaleTest, P11EveryReducedGradientMustBeTouched) {
  Program program = two_layers();
  program.ops.pop_back();  // a.update
  EXPECT_EQ(cannot_fold(program, ScaleAt::Optimizer), "no update reads gradient a.grad");
}

TEST(ScaleTest, P11AnUpdateOfTwoFactorsIsRefused) {
  Program program = two_degrees();
  program.ops[6].reads.push_back(kBGrad);
  EXPECT_EQ(cannot_fold(program, ScaleAt::Optimizer),
            "optimizer op a.update reads gradients with different factors");
}

TEST(ScaleTest, P11WhatBackwardReadsCannotWaitForTheOptimizer) {
  Program program = two_layers();
  ProgramEditor editor(std::move(program));
  editor.insert_after(kABackward, {op_of(editor.new_op_id(), "second.order", Phase::Backward,
                                         {kAGrad}, {kAOutGrad})});
  EXPECT_EQ(cannot_fold(std::move(editor).commit(), ScaleAt::Optimizer),
            "backward op second.order reads the reduced gradient a.grad: scaling in the optimizer "
            "would come too late");
}

// A penalty on a reduced gradient (second order): a fill of 1/4 would not scale the penalty. Where
// nothing is to be scaled there is nothing to refuse, nor where backward only adds gradients up.
TEST(ScaleTest, P10WhatBackwardReadsReducedCannotBeScaledWithTheLoss) {
  Program program = two_layers();
  program.tensors.push_back(tensor_of(TensorId{10}, "total", TensorKind::Activation, 4));
  ProgramEditor editor(std::move(program));
  editor.insert_after(kABackward, {op_of(editor.new_op_id(), "penalty", Phase::Backward,
                                         {kBGrad, kLossGrad}, {TensorId{10}})});
  program = std::move(editor).commit();
  EXPECT_EQ(cannot_fold(program, ScaleAt::LossGradient),
            "backward op penalty reads the reduced gradient b.grad: scaling the loss would not "
            "scale what it makes of it");
  Program sums = program;
  for (Reduction& reduction : sums.reductions) reduction.op = ReduceOp::Sum;
  EXPECT_EQ(cannot_fold(sums, ScaleAt::LossGradient), std::nullopt);
  program.ops[5].reads = {kBGrad};
  program.ops[5].effect = Accumulate{.overwrite = true, .factor = Rational(1)};
  EXPECT_EQ(cannot_fold(program, ScaleAt::LossGradient), std::nullopt);
}

TEST(ScaleTest, AL1P11ANormSeesRescaledGradients) {
  Program program = two_layers();
  program.tensors.push_back(tensor_of(TensorId{10}, "norm", TensorKind::Activation, 1));
  ProgramEditor editor(std::move(program));
  const OpId norm = editor.new_op_id();
  editor.insert_before(kBUpdate, {op_of(norm, "norm", Phase::Optimizer, {kAGrad, kBGrad},
                                        {TensorId{10}}, GlobalNorm{})});
  const Folded result = folded(std::move(editor).commit(), ScaleAt::Optimizer);
  EXPECT_EQ(std::get<GlobalNorm>(result.program.op(norm).effect).rescale, Rational(1, 4));
}

TEST(ScaleTest, PI11ARefusalSaysWhy) {
  Schedule schedule = one_bucket();
  schedule.scale = ScaleAt::Optimizer;
  EXPECT_EQ(reason_of(fold_scaling(with_adam(two_layers()), schedule)),
            "optimizer op b.update has no rescale factor");
}

TEST(ScaleTest, GM9TheAverageOverMicroStepsGoesWhereTheOtherFactorsGo) {
  // 4 ranks, k = 2: 1/8 in all.
  const Merge merge{.micro_steps = 2};
  const Folded loss = folded(two_layers(), ScaleAt::LossGradient, merge);
  EXPECT_EQ(loss_value(loss.program, "loss.fill@0"), Rational(1, 8));
  EXPECT_EQ(loss_value(loss.program, "loss.fill"), Rational(1, 8));
  EXPECT_EQ(rescale(folded(two_layers(), ScaleAt::Optimizer, merge).program, kAUpdate),
            Rational(1, 8));
  EXPECT_EQ(folded(two_layers(), ScaleAt::AfterCollective, merge).left.at(kAGrad), Rational(1, 8));
  // The collective divides by 4, the last accumulate by 2.
  const Folded averaged = folded(two_layers(), ScaleAt::Collective, merge);
  const auto factor = [&](const std::string& op) {
    return std::get<Accumulate>(op_called(averaged.program, op).effect).factor;
  };
  EXPECT_EQ(factor("a.grad.accumulate@0"), Rational(1));
  EXPECT_EQ(factor("a.grad.accumulate@1"), Rational(1, 2));
  EXPECT_EQ(averaged.left.at(kAGrad), Rational(1));
}

TEST(ScaleTest, PI2TheFactorsOnEveryPathMultiplyToWhatIsOwed) {
  // loss fill x last accumulate x collective x bucket x rescale, for every place and every merge.
  for (const ScaleAt scale :
       {ScaleAt::Collective, ScaleAt::BeforeCollective, ScaleAt::AfterCollective,
        ScaleAt::LossGradient, ScaleAt::Optimizer}) {
    for (const std::int32_t k : {1, 2, 4}) {
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average}) {
        const Folded result = folded(two_layers(), scale, Merge{.micro_steps = k, .op = op});
        Rational path = loss_value(result.program, "loss.fill") * result.left.at(kAGrad) *
                        rescale(result.program, kAUpdate);
        if (k > 1) {
          const Op& last = op_called(result.program, "a.grad.accumulate@" + std::to_string(k - 1));
          path = path * std::get<Accumulate>(last.effect).factor;
        }
        if (reduce_op(ReduceOp::Average, scale) == ReduceOp::Average) path = path * Rational(1, 4);
        EXPECT_EQ(path, Rational(1, op == ReduceOp::Average ? 4 * k : 4))
            << to_string(scale) << " k=" << k << ' ' << to_string(op);
      }
    }
  }
}

}  // namespace
}  // namespace dovetail::schedule::rewrite_test
