// Gradient merge: what stands in the Program after k micro-steps were unrolled, rule by rule.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/rewrite/merge.h"

#include "tests/schedule/lower/rewrite_programs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dovetail::schedule::rewrite_test {
namespace {

Program merged_by(Program program, const Merge& merge) {
  return applied<Rewritten>(merge_micro_steps(std::move(program), merge)).program;
}

const Accumulate& accumulate_of(const Program& program, const std::string& name) {
  return std::get<Accumulate>(op_called(program, name).effect);
}

TEST(MergeTest, GMI9OneMicroStepIsTheProgramUnchanged) {
  for (const SyncPoint sync :
       {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
    const Merge merge{.micro_steps = 1, .op = ReduceOp::Average, .sync = sync};
    EXPECT_EQ(merged_by(two_layers(), merge), two_layers());
  }
}

TEST(MergeTest, PI10MergingTwiceIsMergingOnce) {
  const Merge merge{.micro_steps = 2};
  const Program once = merged_by(two_layers(), merge);
  EXPECT_EQ(merged_by(once, merge), once);
  EXPECT_EQ(reason_of(merge_micro_steps(once, Merge{.micro_steps = 3})),
            "the program has 2 micro-steps already, the schedule asks for 3");
}

TEST(MergeTest, GM1FewerThanOneMicroStepIsRefused) {
  EXPECT_EQ(reason_of(merge_micro_steps(two_layers(), Merge{.micro_steps = 0})),
            "0 micro-steps: at least one is needed");
}

TEST(MergeTest, GM6AccumulatesRightBehindTheLastWriter) {
  const Program program = merged_by(two_layers(), Merge{.micro_steps = 2});
  EXPECT_EQ(names(program),
            "a.forward@0 b.forward@0 loss.fill@0 b.backward@0 b.grad.accumulate@0 a.backward@0 "
            "a.grad.accumulate@0 "
            "a.forward b.forward loss.fill b.backward b.grad.accumulate@1 a.backward "
            "a.grad.accumulate@1 "
            "b.update a.update");
}

TEST(MergeTest, GM7WithSyncEveryAccumulatesAtTheEndOfEachBackward) {
  // A bucket of both gradients is reduced after a.backward; only then can b.grad be added.
  const Program program =
      merged_by(two_layers(), Merge{.micro_steps = 2, .sync = SyncPoint::EveryMicroStep});
  EXPECT_EQ(names(program),
            "a.forward@0 b.forward@0 loss.fill@0 b.backward@0 a.backward@0 b.grad.accumulate@0 "
            "a.grad.accumulate@0 "
            "a.forward b.forward loss.fill b.backward a.backward b.grad.accumulate@1 "
            "a.grad.accumulate@1 "
            "b.update a.update");
  EXPECT_EQ(bucketed(program, kAGrad, SyncPoint::EveryMicroStep), kAGrad);
}

TEST(MergeTest, GM4OptimizerOpsRunOncePerUpdate) {
  const Program program = merged_by(two_layers(), Merge{.micro_steps = 4});
  const auto in_phase = [&](Phase phase) {
    return std::ranges::count(program.ops, phase, &Op::phase);
  };
  EXPECT_EQ(in_phase(Phase::Forward), 4 * 2);
  EXPECT_EQ(in_phase(Phase::Backward), 4 * (3 + 2));  // and one accumulate per gradient
  EXPECT_EQ(in_phase(Phase::Optimizer), 2);
}

TEST(MergeTest, GM2GM3GML7OnlyTheLastMicroStepIsDue) {
  const Program program = merged_by(two_layers(), Merge{.micro_steps = 3});
  EXPECT_EQ(program.micro_steps, 3);
  // The last one keeps the ids, so a launch point after an op means the op of the due micro-step.
  for (const Op& op : two_layers().ops) {
    const Op& now = program.op(op.id);
    EXPECT_EQ(now.name, op.name);
    EXPECT_EQ(now.micro_step, op.phase == Phase::Optimizer ? 0 : 2);
  }
  EXPECT_EQ(op_called(program, "a.backward@1").micro_step, 1);
}

TEST(MergeTest, GM5SumsHaveTheShapeOfTheirGradient) {
  const Program program = merged_by(two_layers(), Merge{.micro_steps = 2});
  const Tensor& sum = tensor_called(program, "a.grad.merged");
  EXPECT_EQ(sum.kind, TensorKind::MergedGradient);
  EXPECT_EQ(sum.shape, std::vector<std::int64_t>{8});
  EXPECT_EQ(sum.merges, kAGrad);
  EXPECT_EQ(bucketed(program, kAGrad, SyncPoint::LastMicroStep), sum.id);
  EXPECT_EQ(bucketed(program, kAGrad, SyncPoint::AfterLastMicroStep), sum.id);
  EXPECT_EQ(bucketed(two_layers(), kAGrad, SyncPoint::LastMicroStep), kAGrad);
}

TEST(MergeTest, GML5SumsAreF32WhateverTheGradientIs) {
  Program half = two_layers();
  half.tensors[6].dtype = DType::BF16;
  const Program program = merged_by(half, Merge{.micro_steps = 2});
  EXPECT_EQ(tensor_called(program, "a.grad.merged").dtype, DType::F32);
  // 8 elements: reads 2 bytes, writes 4; then also reads the 4 of the sum.
  EXPECT_EQ(op_called(program, "a.grad.accumulate@0").bytes(), Bytes(8 * 6));
  EXPECT_EQ(op_called(program, "a.grad.accumulate@1").bytes(), Bytes(8 * 10));
  const Merge in_half{.micro_steps = 2, .dtype = DType::BF16};
  EXPECT_EQ(tensor_called(merged_by(half, in_half), "a.grad.merged").dtype, DType::BF16);
}

TEST(MergeTest, GM11ACastBeforeTheOptimizerGoes) {
  // The update of a bf16 gradient reads its f32 copy; the copy is made in backward or before the
  // update. Either way the sum is in f32 already.
  for (const Phase phase : {Phase::Backward, Phase::Optimizer}) {
    Program program = two_layers();
    program.tensors[6].dtype = DType::BF16;
    program.tensors.push_back(tensor_of(TensorId{10}, "a.grad.f32", TensorKind::Gradient, 8));
    ProgramEditor editor(std::move(program));
    editor.insert_before(kBUpdate, {op_of(editor.new_op_id(), "a.cast", phase, {kAGrad},
                                          {TensorId{10}}, Accumulate{true, Rational(1)})});
    editor.rename_use(kAUpdate, kAGrad, TensorId{10});
    const Program result = merged_by(std::move(editor).commit(), Merge{.micro_steps = 2});
    EXPECT_EQ(names(result).find("a.cast"), std::string::npos) << names(result);
    const TensorId sum = tensor_called(result, "a.grad.merged").id;
    EXPECT_EQ(result.op(kAUpdate).reads.front(), sum);
    EXPECT_EQ(result.op(kAUpdate).bytes(), Bytes(160));  // it read f32 before
    EXPECT_EQ(accumulate_of(result, "a.grad.accumulate@0").overwrite, true);
  }
}

TEST(MergeTest, GM8TheOptimizerReadsTheSums) {
  const Program program = merged_by(two_layers(), Merge{.micro_steps = 2});
  const TensorId sum = tensor_called(program, "a.grad.merged").id;
  EXPECT_EQ(program.op(kAUpdate).reads, (std::vector{sum, kA, kAState}));
  for (const Op& op : program.ops) {
    EXPECT_TRUE(op.phase != Phase::Optimizer || std::ranges::count(op.reads, kAGrad) == 0);
  }
}

TEST(MergeTest, GML5TheOptimizerPaysForTheWidthOfTheSums) {
  // 8 elements: the update reads them in 4 bytes for 2, clipping in place writes them besides.
  Program half = two_layers();
  half.tensors[6].dtype = DType::BF16;
  ProgramEditor editor(std::move(half));
  editor.insert_before(kBUpdate,
                       {op_of(editor.new_op_id(), "clip", Phase::Optimizer, {kAGrad}, {kAGrad})});
  const Program result = merged_by(std::move(editor).commit(), Merge{.micro_steps = 2});
  EXPECT_EQ(result.op(kAUpdate).bytes(), Bytes(160 + 16));
  EXPECT_EQ(op_called(result, "clip").bytes(), Bytes(160 + 32));
  EXPECT_EQ(result.op(kBUpdate).bytes(), Bytes(160));
}

TEST(MergeTest, GMI8ClippingInPlaceMeansTheSum) {
  Program program = two_layers();
  ProgramEditor editor(std::move(program));
  editor.insert_before(kBUpdate,
                       {op_of(editor.new_op_id(), "clip", Phase::Optimizer, {kAGrad}, {kAGrad})});
  const Program result = merged_by(std::move(editor).commit(), Merge{.micro_steps = 2});
  const TensorId sum = tensor_called(result, "a.grad.merged").id;
  EXPECT_EQ(op_called(result, "clip").reads, std::vector{sum});
  EXPECT_EQ(op_called(result, "clip").writes, std::vector{sum});
}

TEST(MergeTest, GMI4EverySumStartsFromNothing) {
  const Program program = merged_by(two_layers(), Merge{.micro_steps = 3});
  for (const std::string gradient : {"a.grad", "b.grad"}) {
    const TensorId sum = tensor_called(program, gradient + ".merged").id;
    // What an update left in the sum is not read: the first op that touches it overwrites it.
    const auto first = std::ranges::find_if(program.ops, [&](const Op& op) {
      return std::ranges::count(op.reads, sum) + std::ranges::count(op.writes, sum) > 0;
    });
    EXPECT_EQ(first->name, gradient + ".accumulate@0");
    EXPECT_EQ(std::ranges::count(first->reads, sum), 0);
    EXPECT_TRUE(std::get<Accumulate>(first->effect).overwrite);
    EXPECT_FALSE(accumulate_of(program, gradient + ".accumulate@1").overwrite);
    EXPECT_FALSE(accumulate_of(program, gradient + ".accumulate@2").overwrite);
  }
}

TEST(MergeTest, GMI7EachGradientIsAddedOncePerMicroStep) {
  // k = 4, two gradients: 8 accumulates. Volume (GM13): the first moves 2 V, the others 3 V; V = 48
  // B.
  const Program program = merged_by(two_layers(), Merge{.micro_steps = 4});
  std::int64_t count = 0;
  Bytes moved;
  for (const Op& op : program.ops) {
    if (!std::holds_alternative<Accumulate>(op.effect)) continue;
    ++count;
    moved += op.bytes();
  }
  EXPECT_EQ(count, 8);
  EXPECT_EQ(moved, Bytes((2 + 3 * 3) * 48));
}

TEST(MergeTest, GM9AnAverageBecomesPartOfTheDebt) {
  const Program program = merged_by(two_layers(), Merge{.micro_steps = 4});
  for (const Reduction& reduction : program.reductions) {
    EXPECT_EQ(reduction.scale, Rational(1, 4));
    EXPECT_EQ(program.tensor(reduction.gradient).kind, TensorKind::Gradient);
  }
}

TEST(MergeTest, GMI5ASumOwesKTimesTheAverage) {
  const Program program = merged_by(two_layers(), Merge{.micro_steps = 4, .op = ReduceOp::Sum});
  for (const Reduction& reduction : program.reductions) EXPECT_EQ(reduction.scale, Rational(1));
}

TEST(MergeTest, PL15OneOfSeveralReductionsTakesTheAverage) {
  Program program = two_layers();
  program.groups.push_back({GroupId{1}, "pair", {Rank{0}, Rank{1}}});
  program.reductions.push_back({kAGrad, GroupId{1}, ReduceOp::Average});
  const Program result = merged_by(program, Merge{.micro_steps = 4});
  // The factors multiply, so 1/4 must stand once among the two of a.grad.
  EXPECT_EQ(result.reductions[1].scale * result.reductions[2].scale, Rational(1, 4));
}

TEST(MergeTest, AGradientThatOwesNothingIsAveragedInItsSum) {
  Program program = two_layers();
  program.reductions.pop_back();  // a.grad is local to each rank
  const Program result = merged_by(program, Merge{.micro_steps = 4});
  EXPECT_EQ(accumulate_of(result, "a.grad.accumulate@2").factor, Rational(1));
  EXPECT_EQ(accumulate_of(result, "a.grad.accumulate@3").factor, Rational(1, 4));
  EXPECT_EQ(accumulate_of(result, "b.grad.accumulate@3").factor, Rational(1));
}

// a.grad is read by an op of backward after it is complete.
Program with_backward_reader() {
  Program program = two_layers();
  ProgramEditor editor(std::move(program));
  editor.insert_after(kABackward, {op_of(editor.new_op_id(), "second.order", Phase::Backward,
                                         {kAGrad}, {kAOutGrad})});
  return std::move(editor).commit();
}

TEST(MergeTest, AReaderInBackwardForcesSyncEvery) {
  EXPECT_EQ(reason_of(merge_micro_steps(with_backward_reader(), Merge{.micro_steps = 2})),
            "backward op second.order reads a.grad after it is reduced, so it must be reduced in "
            "every micro-step; the schedule says sync=last");
  const Program result =
      merged_by(with_backward_reader(), Merge{.micro_steps = 2, .sync = SyncPoint::EveryMicroStep});
  EXPECT_EQ(bucketed(result, kAGrad, SyncPoint::EveryMicroStep), kAGrad);
}

TEST(MergeTest, ASharedWeightIsMergedOnceAllItsTermsAreAdded) {
  // total := b.grad + ... both terms owed, the update reads the total: only the total is merged.
  Program program = two_layers();
  program.tensors.push_back(tensor_of(TensorId{10}, "total", TensorKind::Gradient, 8));
  ProgramEditor editor(std::move(program));
  editor.insert_after(kABackward, {op_of(editor.new_op_id(), "copy", Phase::Backward, {kAGrad},
                                         {TensorId{10}}, Accumulate{true, Rational(1)}),
                                   op_of(editor.new_op_id(), "add", Phase::Backward,
                                         {kBGrad, TensorId{10}}, {TensorId{10}}, Accumulate{})});
  editor.rename_use(kAUpdate, kAGrad, TensorId{10});
  editor.remove(kBUpdate);
  const Program result = merged_by(std::move(editor).commit(),
                                   Merge{.micro_steps = 2, .sync = SyncPoint::EveryMicroStep});
  EXPECT_EQ(result.op(kAUpdate).reads.front(), tensor_called(result, "total.merged").id);
  EXPECT_EQ(std::ranges::count(result.tensors, TensorKind::MergedGradient, &Tensor::kind), 1);
  // Its terms' debts carry the average; a factor of its own would apply it twice.
  EXPECT_EQ(accumulate_of(result, "total.accumulate@1").factor, Rational(1));
}

TEST(MergeTest, ReportsWhatItDid) {
  EXPECT_EQ(applied<Rewritten>(merge_micro_steps(two_layers(), Merge{.micro_steps = 4})).report,
            "2 gradients summed over 4 micro-steps in f32, sync=last");
  EXPECT_EQ(applied<Rewritten>(merge_micro_steps(two_layers(), Merge{})).report, "");
}

TEST(MergeTest, RefusesARepeatedProgramThatMissesAWrite) {
  Program program = two_layers();
  program.micro_steps = 2;  // but nothing is repeated
  EXPECT_EQ(reason_of(accumulate_gradients(program, Merge{.micro_steps = 2})),
            "gradient a.grad is written in 1 of 2 micro-steps");
}

}  // namespace
}  // namespace dovetail::schedule::rewrite_test
