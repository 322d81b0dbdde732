// The kernels: they compute what they say, on memory that stays bounded.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/kernels.h"

#include "base/error.h"
#include "exec/rank_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace dovetail::exec::cpu {
namespace {

using schedule::GemmWork;
using schedule::MemoryWork;
using schedule::Op;
using schedule::TimedWork;

void reserve_for(std::vector<schedule::Work> works, Workspace& workspace) {
  std::vector<Op> ops(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) {
    ops[i].name = "fc1.forward";
    ops[i].work = std::move(works[i]);
  }
  std::vector<const schedule::Op*> all;
  for (const schedule::Op& op : ops) all.push_back(&op);
  reserve(all, workspace);
}

TEST(KernelsTest, AGemmIsTheProductOfItsInputs) {
  const GemmWork work = {.m = 5, .n = 7, .k = 3, .count = 2};
  Workspace workspace;
  reserve_for({work}, workspace);
  run_gemm(work, workspace);
  const float* a = workspace.inputs.data();
  const float* b = a + 5 * 3;
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 7; ++j) {
      double sum = 0;
      for (int l = 0; l < 3; ++l) {
        sum += static_cast<double>(a[i * 3 + l]) * static_cast<double>(b[l * 7 + j]);
      }
      EXPECT_NEAR(static_cast<double>(workspace.outputs.data()[i * 7 + j]), sum, 1e-5);
    }
  }
}

TEST(KernelsTest, InputsAreNeverWritten) {
  const GemmWork small = {.m = 8, .n = 8, .k = 8, .count = 1};
  const GemmWork large = {.m = 64, .n = 32, .k = 100, .count = 3};
  Workspace workspace;
  reserve_for({large, small}, workspace);
  const std::vector<float> before(workspace.inputs.data(),
                                  workspace.inputs.data() + workspace.inputs.size());
  for (int i = 0; i < 3; ++i) {
    run_gemm(large, workspace);
    run_gemm(small, workspace);
  }
  const std::vector<float> after(workspace.inputs.data(),
                                 workspace.inputs.data() + workspace.inputs.size());
  EXPECT_EQ(before, after);
}

TEST(KernelsTest, MemoryWorkTouchesOneElementPerTwelveBytes) {
  Workspace workspace;
  reserve_for({MemoryWork{.bytes = kib(24), .flop = {}}}, workspace);
  const std::size_t half = workspace.stream.size() / 2;
  const std::vector<float> before(workspace.stream.data(),
                                  workspace.stream.data() + workspace.stream.size());
  run_memory(Bytes(12 * 100), workspace);
  EXPECT_EQ(workspace.cursor, 100U);
  std::size_t changed = 0;
  for (std::size_t i = 0; i < workspace.stream.size(); ++i) {
    if (workspace.stream.data()[i] != before[i]) ++changed;
  }
  EXPECT_GT(changed, 95U);  // an average of two equal numbers would not show
  EXPECT_LE(changed, 100U);
  EXPECT_EQ(workspace.stream.data()[half], 0.5F * (before[0] + before[half]));
}

TEST(KernelsTest, MemoryWorkGoesRoundItsRingAndStaysBounded) {
  Workspace workspace;
  reserve_for({MemoryWork{.bytes = kib(24), .flop = {}}}, workspace);
  const auto ring = static_cast<std::int64_t>(workspace.stream.size() / 2);
  run_memory(Bytes(12 * (2 * ring + 5)), workspace);
  EXPECT_EQ(workspace.cursor, 5U);
  for (std::size_t i = 0; i < workspace.stream.size(); ++i) {
    ASSERT_LE(std::abs(workspace.stream.data()[i]), 0.5F);
  }
}

TEST(KernelsTest, TheRingHoldsTheMemoryBoundWorkOfOneStepUpToALimit) {
  // 3 ops of 120,000 bytes: 30,000 elements in all, in two arrays, in whole pages of 1024 floats.
  const schedule::Work work = MemoryWork{.bytes = Bytes(120'000), .flop = {}};
  Workspace small;
  reserve_for({work, work, work}, small);
  EXPECT_EQ(small.stream.size(), 60'416U);
  Workspace large;
  reserve_for({MemoryWork{.bytes = gib(8), .flop = {}}}, large);
  EXPECT_EQ(large.stream.size(), std::size_t{16} << 20);  // 64 MiB
}

TEST(KernelsTest, NegativeBytesLeftAfterGradientsAreNoWork) {
  Workspace workspace;
  reserve_for({MemoryWork{.bytes = kib(24), .flop = {}}}, workspace);
  run_memory(Bytes(-400), workspace);
  EXPECT_EQ(workspace.cursor, 0U);
}

TEST(KernelsTest, TimedWorkIsRefusedWithAdvice) {
  schedule::Program program;
  program.ops = {
      Op{.id = OpId{0}, .name = "fc1.forward", .work = TimedWork{.by_rank = {Duration(5)}}}};
  try {
    require_executable(program, "cpu");
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("fc1.forward: "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("unit kernel"));
  }
}

}  // namespace
}  // namespace dovetail::exec::cpu
