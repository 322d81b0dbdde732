// NCCL 2.28.9's fault, as the first GPU showed it: an average of f64 by one rank, out of place, is not written to its end.
// The self-test says whose fault it is, and the executor does not use it.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/tools.h"
#include "exec/selftest/row.h"
#include "schedule/policies/policies.h"
#include "tests/emulated/fixture.h"
#include "tests/emulated/job.h"
#include "tests/exec/programs.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

namespace dovetail::emulated {
namespace {

using exec::selftest::Row;
using exec::selftest::Verdict;
using ::testing::HasSubstr;

constexpr std::int32_t kFaultyNccl = 22809;
constexpr const char* kAverage = "NCCL all-reduce, average, 1 rank";

class NcclFaultTest : public EmulatedTest {
 protected:
  static std::vector<Row> rows_of_one_rank(std::int32_t faulty_nccl) {
    use({.faulty_nccl = faulty_nccl});
    return dovetail_cuda_module()->tools->nccl_rows(exec::alone(), {});
  }
  static Row row(const std::vector<Row>& rows, const std::string& name) {
    const auto found = std::ranges::find(rows, name, &Row::name);
    return found == rows.end() ? Row{.part = "", .name = "", .detail = "missing"} : *found;
  }
};

// Of 1, 1,000 and 65,539 elements the last three of the largest.
TEST_F(NcclFaultTest, ItIsKnownAndWhatFollowsIsTested) {
  const std::vector<Row> rows = rows_of_one_rank(kFaultyNccl);
  const Row known = row(rows, kAverage);
  EXPECT_EQ(known.verdict, Verdict::Known) << known.detail;
  EXPECT_THAT(known.detail, HasSubstr("known fault of NCCL 2.28.9"));
  EXPECT_THAT(known.detail, HasSubstr("elements 65536 to 65538 of 65539 unwritten"));
  EXPECT_THAT(known.detail, HasSubstr("f64 66540 elements 3 wrong"));
  EXPECT_EQ(row(rows, "NCCL send-recv, 1 rank").verdict, Verdict::Pass);
  EXPECT_EQ(exec::selftest::count(rows).failed, 0);
  EXPECT_EQ(exec::selftest::count(rows).known, 1);
}

TEST_F(NcclFaultTest, WithoutItTheRowPasses) {
  const std::vector<Row> rows = rows_of_one_rank(0);
  EXPECT_EQ(row(rows, kAverage).verdict, Verdict::Pass) << row(rows, kAverage).detail;
  EXPECT_EQ(exec::selftest::count(rows).known, 0);
}

// Nobody has seen it there.
TEST_F(NcclFaultTest, InAnotherVersionItIsAFailure) {
  const std::vector<Row> rows = rows_of_one_rank(kFaultyNccl + 1);
  EXPECT_EQ(row(rows, kAverage).verdict, Verdict::Fail);
}

// Gradients of 70,000 elements and fewer of f64, averaged by one rank. Buckets are reduced in place, messages of ops are
// f32 (exec/values/op_message.cc), so the fault is never met.
TEST_F(NcclFaultTest, TheExecutorDoesNotMeetIt) {
  use({.faulty_nccl = kFaultyNccl});
  schedule::Program program = exec::testing::three_layers(1);
  for (schedule::Tensor& tensor : program.tensors) {
    tensor.dtype = schedule::DType::F64;
    if (!tensor.shape.empty()) tensor.shape.front() *= 100;
  }
  const auto plan = exec::testing::plan_of(
      program, schedule::make_schedule(program, schedule::parse_policy("per-tensor")));
  const bool averages = std::ranges::any_of(plan.transfers, [](const schedule::Transfer& one) {
    return one.reduce == schedule::ReduceOp::Average;
  });
  EXPECT_TRUE(averages);
  const Outcome outcome = run_job(plan, {});
  EXPECT_EQ(outcome.error, "");
  EXPECT_GE(outcome.check.checked, 3 * 70'000);  // of three steps
  EXPECT_EQ(outcome.check.wrong, 0) << outcome.check.first_wrong;
}

}  // namespace
}  // namespace dovetail::emulated
