// What ranks hold over a step of a job: its peak is the job's, and what comes goes.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/memory_over_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "answers/prediction.h"
#include "answers/step_parts.h"
#include "models/networks/decisions.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "schedule/policies/policies.h"
#include "tests/support/job_models.h"

namespace dovetail::predict {
namespace {

using traces::MemoryLevels;
using traces::RankMemory;

struct Held {
  jobs::Job job;
  LoweredJob lowered;
  traces::Trace trace;
  std::vector<jobs::StageMemory> stages;
  std::vector<RankMemory> ranks;
};

Held held_by(const std::string& options) {
  const models::Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models");
  Held held{.job = jobs::parse_job(testing::kShortLlama + options),
            .lowered = {},
            .trace = {},
            .stages = {},
            .ranks = {}};
  held.lowered = lower_job(held.job, cluster);
  const auto& [program, costs] = held.lowered;
  held.trace =
      trace_of({.program = program, .costs = costs, .steady = steady_state(program, costs)},
               kTraceSteps)
          .trace;
  held.stages = jobs::memory_of(held.job);
  held.ranks = memory_over_time(program, held.trace, {.step = 1, .stages = held.stages});
  return held;
}

Bytes most(const RankMemory& rank, Bytes MemoryLevels::*part) {
  return (*std::ranges::max_element(rank.levels, {}, part)).*part;
}

// 1F1B of two stages: two micro-batches in flight on the first, one on the last.
TEST(MemoryOverTimeTest, AsManyMicroBatchesAsAreInFlightAndThePeakOfTheJob) {
  const Held held = held_by(":pp=2,dp=4,gbs=32,seq=2048");
  ASSERT_EQ(held.ranks.size(), 2U);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const RankMemory& rank = held.ranks[stage];
    const auto in_flight = static_cast<double>(2 - stage);
    EXPECT_NEAR(static_cast<double>(most(rank, &MemoryLevels::activations).count()),
                in_flight * static_cast<double>(held.stages[stage].kept.count()), 8);
    EXPECT_EQ(most(rank, &MemoryLevels::gradients), held.stages[stage].sums);
    const auto full = std::ranges::max_element(rank.levels, {}, &MemoryLevels::sum);
    EXPECT_EQ(rank.rest + full->sum(), held.stages[stage].total());
    EXPECT_EQ(rank.levels.front().sum(), Bytes());
    EXPECT_EQ(rank.levels.back().sum(), Bytes());
  }
}

// A block for each layer, one ahead: never more than the policy says of its Schedule, and all is let go.
TEST(MemoryOverTimeTest, ParametersAreGatheredAndReleased) {
  const Held held = held_by(":dp_shard=8,gbs=8,seq=2048");
  ASSERT_EQ(held.ranks.size(), 1U);
  const RankMemory& rank = held.ranks.front();
  const schedule::PolicyResult made =
      schedule::apply_policy(jobs::program_of(held.job), jobs::policy_of(held.job));
  EXPECT_GT(most(rank, &MemoryLevels::gathered), Bytes());
  EXPECT_LE(most(rank, &MemoryLevels::gathered), made.most_gathered);
  EXPECT_EQ(rank.levels.back().gathered, Bytes());
}

TEST(MemoryOverTimeTest, NothingIsSaidOfAStepWhoseMemoryIsNotKnown) {
  const Held held = held_by(":dp=8,gbs=8,seq=2048");
  EXPECT_TRUE(memory_over_time(held.lowered.program, held.trace, {.step = 1}).empty());
}

TEST(BubblesTest, AddUpToTheBubbleOfEachStage) {
  const Held held = held_by(":pp=2,dp=4,gbs=32,seq=2048");
  const schedule::ScheduledProgram& program = held.lowered.program;
  const auto moments = bubbles(program, held.trace, held.trace.steps - 1);
  const std::vector<StageParts> stages = step_parts(program, held.trace);
  ASSERT_EQ(moments.size(), stages.size());
  for (const auto& [rank, bubble] : moments) {
    EXPECT_EQ(traces::length(bubble), stages[static_cast<std::size_t>(rank.value) / 4].bubble);
    EXPECT_GT(traces::length(bubble), Duration{});
  }
  EXPECT_TRUE(bubbles(held_by(":dp=8,gbs=8,seq=2048").lowered.program, held.trace, 0).empty());
}

}  // namespace
}  // namespace dovetail::predict
