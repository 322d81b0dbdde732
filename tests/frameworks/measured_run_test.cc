// What logs of runs say that was measured. The logs are made up.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/measured_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "frameworks/jobs/job_source.h"
#include "models/networks/text.h"

namespace dovetail::frameworks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MeasuredRun run_of(const std::string& name) {
  return measured_run(
      read_file(std::string(DOVETAIL_SOURCE_DIR) + "/tests/frameworks/data/" + name));
}

std::vector<double> ms_of(const std::vector<LoggedStep>& steps, const jobs::Job& job = {}) {
  std::vector<double> times;
  for (const LoggedStep& step : steps) times.push_back(to_us(step.time(job)) / 1e3);
  return times;
}

// The last line is cut off behind "elapsed time per iteration (ms):".
TEST(MeasuredRunTest, ReadsMegatronsIterationsBehindTheFirstTwo) {
  const MeasuredRun run = run_of("made_up_megatron.log");
  EXPECT_EQ(run.by, LoggedBy::Megatron);
  EXPECT_EQ(run.steps.size(), 10U);
  EXPECT_EQ(run.unread, 1U);
  EXPECT_THAT(ms_of(run.steady()), ElementsAre(8160, 8100, 8050, 8130, 8070, 8210, 7990, 8110));
  EXPECT_EQ(run.steps[3].iteration, 4);
  EXPECT_EQ(run.steps[3].tflop_per_s, 410.0);
  EXPECT_EQ(run.steps[3].global_batch, 64);
}

// Ranks 0 and 1 wrote into one line. Megatron's MB are MiB.
TEST(MeasuredRunTest, ReadsTheMostThatEachRankHeld) {
  const MeasuredRun run = run_of("made_up_megatron.log");
  ASSERT_EQ(run.memory.size(), 3U);
  EXPECT_EQ(run.memory[0].allocated, gib(48));
  EXPECT_EQ(run.memory[0].reserved, gib(54));
  EXPECT_EQ(run.memory[1].reserved, mib(54'000));
  EXPECT_EQ(run.memory[2].rank, 4);
  EXPECT_EQ(run.memory[2].allocated, gib(40));
}

// 8,192 tokens on each of 8 GPUs: at 7,280 a second 1,125.3 ms.
TEST(MeasuredRunTest, ReadsTorchtitansStepsAmongColours) {
  const MeasuredRun run = run_of("made_up_titan.log");
  EXPECT_EQ(run.by, LoggedBy::Torchtitan);
  ASSERT_EQ(run.steps.size(), 5U);
  EXPECT_EQ(run.steps[3].tokens_per_s, 7280);
  EXPECT_EQ(run.steps[3].tflop_per_s, 420.78);
  const jobs::Job job = jobs::parse_job("llama3_8b:dp_shard=8,seq=8192");
  EXPECT_NEAR(ms_of(run.steady(), job)[1], 1125.27, 0.01);
  ASSERT_EQ(run.memory.size(), 1U);
  EXPECT_FALSE(run.memory[0].allocated);
  EXPECT_NEAR(static_cast<double>(run.memory[0].reserved->count()), 47.29 * (1 << 30), 1);
}

TEST(MeasuredRunTest, PassesOverLinesThatHoldNoNumbers) {
  const MeasuredRun run = measured_run(
      " iteration 1/ 4 | elapsed time per iteration (ms): nan |\n"
      " iteration x/ 4 | elapsed time per iteration (ms): 10.0 |\n"
      " iteration 3/ 4 | elapsed time per iteration (ms): -5.0 |\n"
      " iteration 4/ 4 | elapsed time per iteration (ms): 20.0/21.0 |\n"
      "[Rank x] memory (MB) | max allocated: 5.0\n"
      "[Rank 0] memory (MB) | max allocated: 1e300 | reserved: 3.0\n");
  EXPECT_THAT(ms_of(run.steps), ElementsAre(20));
  EXPECT_EQ(run.unread, 3U);
  ASSERT_EQ(run.memory.size(), 1U);
  EXPECT_FALSE(run.memory[0].allocated);
  EXPECT_EQ(run.memory[0].reserved, mib(3));
  EXPECT_THAT(measured_run("see https://example.org step: 3\n").steps, IsEmpty());
}

TEST(MeasuredRunTest, OfSeveralRunsTheLastCounts) {
  const std::string step = " iteration 7/ 9 | elapsed time per iteration (ms): ";
  const std::string arguments = "-------- arguments --------\n";
  EXPECT_THAT(ms_of(measured_run(arguments + step + "10.0 |\n" + arguments).steps), IsEmpty());
  EXPECT_THAT(ms_of(measured_run(step + "10.0 |\n" + step + "11.0 |\n").steps), ElementsAre(11));
}

}  // namespace
}  // namespace dovetail::frameworks
