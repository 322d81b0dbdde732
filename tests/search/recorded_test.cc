// What a recorded step runs now is a row of the sweep, and a gain against it is told only as far as
// the recording goes.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/recorded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>

#include "models/clusters/cluster.h"
#include "models/networks/zoo.h"
#include "schedule/data_parallel.h"
#include "schedule/policies/policies.h"

namespace dovetail::search {
namespace {

struct Recording {
  schedule::Program program;
  models::Costs costs;
  models::RecordedStep step;
};

// A model on eight GPUs, recorded with all gradients in one bucket, which ends last of all.
Recording recording() {
  const models::Cluster machine =
      models::load_cluster("a100x4_pcie", std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters");
  Recording result{
      .program = models::zoo_program("vgg16", {.world_size = machine.ranks}),
      .costs = {},
      .step = {.step = std::chrono::milliseconds(200), .framework = "torch", .buckets = {{}}}};
  result.costs = models::costs_for(machine, result.program);
  result.step.buckets[0].resize(result.program.reductions.size());
  std::iota(result.step.buckets[0].begin(), result.step.buckets[0].end(), std::size_t{0});
  return result;
}

Sweep sweep_of(Planner& planner, const Recording& recorded, std::string_view framework) {
  const frameworks::Framework& meant = frameworks::framework(framework);
  return run_sweep(planner, {.framework = &meant,
                             .policies = usual_policies(meant, recorded.program),
                             .recorded = recorded_run(recorded.program, recorded.step),
                             .thresholds = {mib(25)}});
}

TEST(RecordedTest, WhatWasRecordedIsWhatThereIsNow) {
  const Recording recorded = recording();
  Planner planner(recorded.program, recorded.costs);
  const Sweep sweep = sweep_of(planner, recorded, "torch");
  ASSERT_EQ(row_of_now(sweep, recorded.program), 0U);
  const SweepRow& now = sweep.rows[0];
  EXPECT_TRUE(now.is_recorded);
  EXPECT_EQ(now.candidate.buckets(), 1U);
  EXPECT_EQ(now.said->words, "PyTorch DDP as recorded");
  // Expectation: 25 MiB buckets travel beside backward, one bucket of all does not.
  EXPECT_NE(sweep.best, 0U);
  EXPECT_LT(step_ns(sweep.rows[sweep.best]), step_ns(now));
  // Another framework does not run it by itself.
  EXPECT_FALSE(sweep_of(planner, recorded, "megatron").rows[0].said.has_value());
}

TEST(RecordedTest, WithoutARecordingNowIsTheDefault) {
  const Recording recorded = recording();
  Planner planner(recorded.program, recorded.costs);
  const frameworks::Framework& torch = frameworks::framework("torch");
  const Sweep sweep = run_sweep(planner, {.framework = &torch,
                                          .policies = usual_policies(torch, recorded.program),
                                          .thresholds = {mib(25)}});
  const SweepRow& now = sweep.rows[*row_of_now(sweep, recorded.program)];
  EXPECT_EQ(now.said->words, "PyTorch DDP's default");
}

// The interval is as wide as the workload misses the recorded step: a miss of more than the gain
// leaves nothing to be told.
TEST(RecordedTest, AGainIsToldAsFarAsTheWorkloadIsTheRecordedStep) {
  Recording recorded = recording();
  Planner planner(recorded.program, recorded.costs);
  const Sweep sweep = sweep_of(planner, recorded, "torch");
  const models::CostBounds same{.cheap = recorded.costs, .dear = recorded.costs};
  const auto answer = recorded_answer(planner, same, recorded.step, sweep);
  ASSERT_TRUE(answer.has_value());
  const Duration gain = answer->gain.middle;
  EXPECT_EQ(answer->gain.high - gain, std::chrono::milliseconds(1));  // half a per cent
  ASSERT_GT(gain, std::chrono::milliseconds(1));
  EXPECT_TRUE(answer->is_told());
  recorded.step.replayed = recorded.step.step + gain;
  const auto missed = recorded_answer(planner, same, recorded.step, sweep);
  EXPECT_EQ(missed->gain, (Gain{gain, Duration{}, 2 * gain}));
  EXPECT_FALSE(missed->is_told());
}

TEST(RecordedTest, WhatTheRecordingDoesNotTellIsInTheInterval) {
  const Recording recorded = recording();
  models::CostBounds bounds{.cheap = recorded.costs, .dear = recorded.costs};
  bounds.dear.host.collective += std::chrono::milliseconds(30);  // each further bucket
  Planner planner(recorded.program, recorded.costs);
  const Sweep sweep = sweep_of(planner, recorded, "torch");
  Gains gains(recorded.program, recorded.costs, bounds, sweep.rows[0].candidate.schedule,
              Duration{});
  EXPECT_EQ(gains.of(sweep.rows[0].candidate.schedule), Gain{});
  Gains unsure(recorded.program, recorded.costs, bounds, sweep.rows[0].candidate.schedule,
               std::chrono::milliseconds(7));
  schedule::Schedule renamed = sweep.rows[0].candidate.schedule;  // somebody else made it
  renamed.policy = "one-bucket";
  EXPECT_EQ(unsure.of(renamed), Gain{});
  const Gain gain = gains.of(sweep.rows[sweep.best].candidate.schedule);
  EXPECT_LT(gain.low, gain.middle);
  EXPECT_EQ(gain.high, gain.middle);
}

TEST(RecordedTest, RecordedBucketsGoWithTheLayoutUnlessGradientsAreReducedTwice) {
  const Recording recorded = recording();
  const schedule::Program wide = schedule::lay_out(recorded.program, {.dp = 16});
  EXPECT_EQ(recorded_run(wide, recorded.step)->schedule.buckets.size(), 1U);
  const schedule::Program hybrid = schedule::lay_out(recorded.program, {.dp = 2, .dp_shard = 4});
  EXPECT_FALSE(recorded_run(hybrid, recorded.step).has_value());
}

TEST(RecordedTest, TheRecordedStepStandsBesideTheSimulatedOne) {
  using std::chrono::milliseconds;
  const RecordedAnswer answer{.recorded = milliseconds(80),
                              .now = milliseconds(84),
                              .gain = {milliseconds(14), milliseconds(10), milliseconds(15)}};
  EXPECT_EQ(
      in_words(answer),
      "70 ms a step against 84 ms now (recorded: 80 ms, +5.0 %): 14 ms less (10 ms to 15 ms)");
  const RecordedAnswer elsewhere{.recorded = {},
                                 .now = milliseconds(84),
                                 .gain = {milliseconds(-6), milliseconds(-9), milliseconds(1)}};
  EXPECT_EQ(in_words(elsewhere),
            "90 ms a step against 84 ms now (as recorded): 6 ms more (-1 ms to 9 ms)");
}

}  // namespace
}  // namespace dovetail::search
