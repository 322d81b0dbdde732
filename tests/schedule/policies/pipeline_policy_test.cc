// The policy of pipelines: which Programs it takes, and where its buckets end.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>

#include "schedule/lower/pipeline/assign.h"
#include "tests/schedule/policies/applied.h"
#include "tests/support/programs.h"

namespace dovetail::schedule {
namespace {

using dovetail::testing::chain;
using dovetail::testing::us;
using ::testing::HasSubstr;

// Four equal layers of 4 KiB on two ranks per stage.
Program staged(std::int32_t stages, std::int32_t chunks = 1) {
  const dovetail::testing::Layer layer{us(10), us(20), kib(4), us(1)};
  Program program = chain({layer, layer, layer, layer}, 2);
  if (stages == 1) return program;
  Rewrite outcome = assign_stages(std::move(program), {.stages = stages, .chunks = chunks});
  return std::get<Rewritten>(std::move(outcome)).program;
}

TEST(PipelinePolicyTest, NoBucketSpansTwoStages) {
  // Stage 0 has layers 0 and 1, stage 1 layers 2 and 3. The cap takes all four gradients, in ready
  // order l3 l2 l1 l0: one bucket per stage, that of stage 1 first.
  const Program program = staged(2);
  const Schedule schedule = applied(program, "pipeline:stages=2,k=4").schedule;
  ASSERT_EQ(schedule.buckets.size(), 2U);
  EXPECT_EQ(program.tensor(schedule.buckets[0].gradients.front().tensor).name, "l3.grad");
  EXPECT_EQ(program.tensor(schedule.buckets[1].gradients.front().tensor).name, "l1.grad");
  EXPECT_EQ(schedule.merge.micro_steps, 4);
  EXPECT_EQ(schedule.pipeline.kind, PipelineKind::OneFOneB);
}

TEST(PipelinePolicyTest, EveryOrderIsLegal) {
  for (const auto& [policy, chunks] :
       {std::pair("pipeline:kind=sequential,stages=2,k=2", 1),
        std::pair("pipeline:kind=1f1b,stages=2,k=4", 1), std::pair("pipeline:stages=2,k=1", 1),
        std::pair("pipeline:kind=interleaved,stages=2,chunks=2,k=4", 2),
        std::pair("pipeline:kind=interleaved,stages=2,chunks=2,k=4,align=across-stages", 2),
        std::pair("pipeline:stages=2,cap=4KiB,mode=copy,wait=end-of-backward", 1)}) {
    const Program program = staged(2, chunks);
    const PolicyResult result = applied(program, policy);
    ASSERT_EQ(result.failure, std::nullopt) << policy;
    const auto problems =
        verify(program, lower(program, result.schedule).program, result.schedule.merge);
    EXPECT_TRUE(problems.empty()) << policy << ": " << problems.front().message;
  }
}

TEST(PipelinePolicyTest, AProgramWithoutStagesIsRefused) {
  EXPECT_EQ(applied(staged(1), "pipeline:stages=2").failure,
            "the program has 1 stage, the policy is for 2");
}

TEST(PipelinePolicyTest, MicroBatchesThatCannotBeDealtOutAreRefused) {
  const PolicyResult result =
      applied(staged(2, 2), "pipeline:kind=interleaved,stages=2,chunks=2,k=3");
  ASSERT_TRUE(result.failure.has_value());
  EXPECT_THAT(*result.failure, HasSubstr("need a multiple of 2 micro-batches, not 3"));
}

}  // namespace
}  // namespace dovetail::schedule
