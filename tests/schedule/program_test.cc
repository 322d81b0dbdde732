// What makes a Program meaningless, in words.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/program.h"

#include "tests/schedule/verify/verify_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::schedule::verify_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two layers, each with a sum over two micro-steps: l1.grad.merged := l1.grad, then += l1.grad.
Program merged() {
  const Program program = training({4, 6});
  Schedule schedule = buckets_of(program, {{"l1"}, {"l0"}});
  schedule.merge = {.micro_steps = 2};
  Program result = lower(program, schedule).program.program;
  EXPECT_THAT(problems(result), IsEmpty());
  return result;
}

TEST(ProgramTest, AnOwedGradientIsWrittenInEachMicroStep) {
  Program program = training({4, 6});
  EXPECT_THAT(problems(program), IsEmpty());
  program.micro_steps = 2;  // its ops are all of the first one
  EXPECT_THAT(
      problems(program),
      ElementsAre("gradient l1.grad is to be reduced but only 1 of 2 micro-steps write it",
                  "gradient l0.grad is to be reduced but only 1 of 2 micro-steps write it"));
  program = merged();
  std::erase(op_named(program, "l0.backward").writes, tensor_named(program, "l0.grad"));
  EXPECT_THAT(
      problems(program),
      ElementsAre("gradient l0.grad is to be reduced but only 1 of 2 micro-steps write it"));
}

TEST(ProgramTest, AMergedGradientHasMicroStepsToSum) {
  Program program = merged();
  const TensorId sum = tensor_named(program, "l0.grad.merged");
  std::erase_if(program.ops, [&](const Op& op) { return op.writes == std::vector{sum}; });
  EXPECT_THAT(
      problems(program),
      ElementsAre("merged gradient l0.grad.merged is written by no op before the optimizer"));
  program = merged();
  Tensor& tensor = program.tensors[static_cast<std::size_t>(sum.value)];
  tensor.merges = TensorId{99};
  tensor.kind = TensorKind::Activation;
  EXPECT_THAT(problems(program),
              ElementsAre("tensor l0.grad.merged merges a gradient, but is no merged gradient",
                          "tensor l0.grad.merged merges the unknown tensor 99"));
}

TEST(ProgramTest, ASumAddsOneTensorToOneOther) {
  Program program = merged();
  Op& sum = op_named(program, "l0.grad.accumulate@1");
  sum.reads.push_back(tensor_named(program, "l1.grad"));
  EXPECT_THAT(problems(program), ElementsAre("sum l0.grad.accumulate@1 reads 2 tensors besides the "
                                             "one that it writes, not one"));
  sum.reads = sum.writes;
  EXPECT_THAT(problems(program), ElementsAre("sum l0.grad.accumulate@1 reads 0 tensors besides the "
                                             "one that it writes, not one"));
  sum.writes.push_back(tensor_named(program, "l1.grad.merged"));
  EXPECT_THAT(problems(program), ElementsAre("sum l0.grad.accumulate@1 writes 2 tensors, not one"));
}

TEST(ProgramTest, EachKernelOfAnOpIsSound) {
  Program program = training({4, 6});
  Op& op = op_named(program, "l0.backward");
  op.work = KernelsWork{{GemmWork{2, 3, 4, 5}, MemoryWork{Bytes(100), Flop(7)}}};
  EXPECT_THAT(problems(program), IsEmpty());
  EXPECT_EQ(op.flop(), Flop(2 * 2 * 3 * 4 * 5 + 7));
  EXPECT_EQ(op.bytes(), element_size(op.dtype) * (5 * (2 * 4 + 4 * 3 + 2 * 3)) + Bytes(100));
  op.work = KernelsWork{{GemmWork{0, 3, 4, 5}, MemoryWork{Bytes(-1), Flop(7)}}};
  EXPECT_THAT(problems(program), ElementsAre("op l0.backward has a GEMM with an extent below 1",
                                             "op l0.backward has negative work"));
  op.work = KernelsWork{};
  EXPECT_THAT(problems(program), ElementsAre("op l0.backward has no kernel"));
}

TEST(ProgramTest, ANormWritesOneTensor) {
  Program program = training({4, 6});
  op_named(program, "l0.update").effect = GlobalNorm{};
  EXPECT_THAT(problems(program), ElementsAre("norm l0.update writes 2 tensors, not one"));
  op_named(program, "l0.update").writes.clear();
  EXPECT_THAT(problems(program), ElementsAre("norm l0.update writes 0 tensors, not one"));
}

}  // namespace
}  // namespace dovetail::schedule::verify_test
