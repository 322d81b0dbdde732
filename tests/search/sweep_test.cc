// The search over policies: what becomes a row, what is left out, and which row is best.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/clusters/cluster.h"
#include "models/networks/zoo.h"
#include "schedule/policies/policies.h"
#include "search/planner.h"

namespace dovetail::search {
namespace {

struct Job {
  schedule::Program program;
  models::Costs costs;
};

Job job_of(const std::string& model, const std::string& cluster) {
  const models::Cluster machine =
      models::load_cluster(cluster, std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters");
  Job job{.program = models::zoo_program(model, {.world_size = machine.ranks}), .costs = {}};
  job.costs = models::costs_for(machine, job.program);
  return job;
}

Planner planner_of(const std::string& model, const std::string& cluster) {
  Job job = job_of(model, cluster);
  return {std::move(job.program), std::move(job.costs)};
}

SweptPolicy policy(const std::string& text, SweptPolicy::Sizes sizes = SweptPolicy::Sizes::Own) {
  return {schedule::parse_policy(text), sizes};
}

TEST(SweepTest, EveryThresholdIsARowAndAllRowsAreAsSimulated) {
  Planner planner = planner_of("resnet18", "a100x8");
  const SweepOptions options{
      .policies = {policy("torch-ddp", SweptPolicy::Sizes::Each), policy("per-tensor")},
      .thresholds = {mib(1), mib(4), mib(25)},
      .chosen = SweepOptions::Chosen::Named};
  const Sweep sweep = run_sweep(planner, options);
  // What PyTorch DDP makes of the fastest, one collective for each gradient, divides them in a pass, which makes it slower than the others.
  ASSERT_EQ(sweep.rows.size(), 4U);
  EXPECT_EQ(row_count(options), 4);
  EXPECT_EQ(sweep.rows[1].threshold, mib(4));
  EXPECT_EQ(sweep.rows[3].threshold, std::nullopt);
  for (const SweepRow& row : sweep.rows) {
    if (row.said) {
      EXPECT_GE(step_ns(row), step_ns(sweep.rows[sweep.best]));
    }
    // Another planner, which has no evaluator yet, simulates it.
    Planner fresh = planner_of("resnet18", "a100x8");
    EXPECT_EQ(fresh.evaluate(row.candidate.schedule), row.candidate.summary);
  }
}

TEST(SweepTest, APlanIsARowOfItsNameAndAStartOfExact) {
  // Expectation: exact finds the plan again, or something faster, though it climbs from elsewhere.
  Planner finder = planner_of("vgg16", "a100x4_pcie");
  const Candidate best = finder.evaluate(schedule::parse_policy("exact"));
  Planner planner = planner_of("vgg16", "a100x4_pcie");
  const Sweep sweep = run_sweep(planner, {.policies = {policy("exact"), policy("per-tensor")},
                                          .plans = {{"mine.json", best.schedule}},
                                          .thresholds = {mib(25)},
                                          .chosen = SweepOptions::Chosen::Named});
  ASSERT_EQ(sweep.rows.size(), 3U);
  // The row of the plan is what PyTorch's DDP makes of it: with its copies, and its waits at the end of backward.
  EXPECT_EQ(sweep.rows[0].candidate.name(), "mine.json");
  EXPECT_TRUE(sweep.rows[0].is_changed);
  EXPECT_GT(step_ns(sweep.rows[0]), static_cast<double>(best.summary.step_ns));
  EXPECT_EQ(finder.evaluate(sweep.rows[0].candidate.schedule), sweep.rows[0].candidate.summary);
  EXPECT_LE(step_ns(sweep.rows[1]), static_cast<double>(best.summary.step_ns));
}

TEST(SweepTest, ManySizesOfOneRowAreNotAllTriedAndTheRowIsAsGood) {
  const std::string sharded = "sharded:p=1,gather=next-forward";
  const std::vector<Bytes> sizes = log_range(kib(512), mib(128), 60);
  Planner planner = planner_of("resnet18", "a100x16_ib");
  const Sweep coarse = run_sweep(planner, {.policies = {policy(sharded, SweptPolicy::Sizes::Best)},
                                           .thresholds = sizes,
                                           .chosen = SweepOptions::Chosen::Named});
  ASSERT_EQ(coarse.rows.size(), 1U);
  EXPECT_LT(planner.simulated(), 30U);
  Planner all = planner_of("resnet18", "a100x16_ib");
  double best = step_ns(coarse.rows[0]);
  for (const Bytes size : sizes) {
    const schedule::Policy spec = schedule::with_bucket_size(schedule::parse_policy(sharded), size);
    best = std::min(best, static_cast<double>(all.evaluate(spec).summary.step_ns));
  }
  EXPECT_LT(step_ns(coarse.rows[0]), 1.005 * best);
}

TEST(SweepTest, WhatNobodyNamedIsLeftOutAndWhatSomebodyNamedIsRefused) {
  const SweptPolicy stages = policy("pipeline:stages=4");
  Planner planner = planner_of("mlp", "a100x8");
  SweepOptions options{.policies = {stages, policy("per-tensor")}, .thresholds = {mib(25)}};
  const Sweep sweep = run_sweep(planner, options);
  EXPECT_EQ(sweep.rows.size(), 1U);
  EXPECT_EQ(sweep.left_out,
            std::vector<std::string>{"pipeline: the program has 1 stage, the policy is for 4"});
  options.policies.front().is_named = true;
  EXPECT_THROW(run_sweep(planner, options), InputError);
}

// DeAR's loop over torchvision's 107 modules with parameters, 25 MiB: elements of its groups, in forward order 6,308,928
// (conv1 to layer3.2), 6,172,672, 5,511,168, 5,515,264 and fc's 2,049,000.
TEST(SweepTest, DearFormsFiveGroupsOfResnet50) {
  const Job job = job_of("resnet50", "a100x8");
  std::vector<std::int64_t> elements;
  const schedule::Policy dear = schedule::parse_policy("dear");
  for (const schedule::Bucket& bucket : schedule::make_schedule(job.program, dear).buckets) {
    elements.push_back(schedule::payload(job.program, bucket).count() / 4);
  }
  EXPECT_EQ(elements,
            (std::vector<std::int64_t>{2'049'000, 5'515'264, 5'511'168, 6'172'672, 6'308'928}));
}

TEST(SweepTest, EveryPolicyIsARowOrLeftOutWithItsReason) {
  Planner planner = planner_of("resnet18", "a100x8");
  const SweepOptions options{.policies = every_policy(planner.program()),
                             .thresholds = {mib(25)},
                             .chosen = SweepOptions::Chosen::Every};
  const Sweep sweep = run_sweep(planner, options);
  const auto rows_of = [&](const std::string& text) {
    const schedule::Policy spec = schedule::parse_policy(text);
    return std::ranges::count(sweep.rows, spec,
                              [](const SweepRow& row) { return row.candidate.spec; });
  };
  for (const std::string& name : schedule::policy_names()) {
    EXPECT_EQ(rows_of(name), name == "pipeline" ? 0 : 1) << name;
  }
  for (const frameworks::Framework& framework : frameworks::all()) {
    for (const schedule::Preset& preset : framework.presets) {
      EXPECT_EQ(rows_of(std::string(preset.stands_for)), 1) << preset.name;
    }
  }
  EXPECT_EQ(sweep.rows.size() + 1, options.policies.size());
  for (const SweepRow& row : sweep.rows) EXPECT_FALSE(row.is_changed) << row.candidate.name();
  EXPECT_EQ(sweep.left_out,
            std::vector<std::string>{"pipeline: the program has 1 stage, the policy is for 2"});
  // What shards updates is another job, and what has micro-steps another batch: neither is best.
  EXPECT_FALSE(sweep.rows[sweep.best].candidate.sharded());
  EXPECT_EQ(micro_steps(sweep.rows[sweep.best]), 1);
}

TEST(SweepTest, FewerThreadBlocksAreASettingOfNccl) {
  Planner planner = planner_of("mlp", "a100x8");
  const Sweep sweep = run_sweep(planner, {.policies = {policy("torch-ddp:ctas=8")},
                                          .thresholds = {mib(25)},
                                          .chosen = SweepOptions::Chosen::Named});
  ASSERT_FALSE(sweep.rows.empty());
  ASSERT_TRUE(sweep.rows.front().said.has_value());
  EXPECT_TRUE(sweep.rows.front().said->words.ends_with(", NCCL_MAX_CTAS=8"))
      << sweep.rows.front().said->words;
  EXPECT_EQ(sweep.rows.front().candidate.schedule.buckets.front().max_ctas, 8);
}

TEST(SweepTest, TheBestNumberOfThreadBlocksIsSearched) {
  Planner planner = planner_of("gpt2", "a100x16_ib");
  const std::string ddp = "torch-ddp:cap=25MiB,first=1MiB";
  const Sweep sweep = run_sweep(planner, {.policies = {policy(ddp + ",ctas=search")},
                                          .thresholds = {mib(25)},
                                          .chosen = SweepOptions::Chosen::Named});
  const SweepRow& found = sweep.rows.front();
  EXPECT_EQ(found.candidate.name(), ddp + ",ctas=search");
  const std::int32_t ctas = found.candidate.schedule.buckets.front().max_ctas;
  ASSERT_GT(ctas, 0);
  ASSERT_TRUE(found.said.has_value());
  EXPECT_TRUE(found.said->words.ends_with(", NCCL_MAX_CTAS=" + std::to_string(ctas)));
  Planner fresh = planner_of("gpt2", "a100x16_ib");
  for (const std::int32_t other : Planner::kTriedCtas) {
    const auto fixed = schedule::with_ctas(schedule::parse_policy(ddp), other);
    const auto step = static_cast<double>(fresh.evaluate(fixed).summary.step_ns);
    EXPECT_LE(step_ns(found), step) << other;
    if (other == ctas) {
      EXPECT_EQ(step_ns(found), step);
    }
  }
}

// A device with room for half of what DDP keeps, and for an eighth of it.
TEST(SweepTest, WhatDoesNotFitIsBestOnlyWhereNothingFits) {
  Planner planner = planner_of("resnet18", "a100x8");
  SweepOptions options{.policies = {policy("exact"), policy("fsdp")},
                       .thresholds = {mib(25)},
                       .chosen = SweepOptions::Chosen::Named};
  const auto best_with = [&](std::optional<Bytes> capacity) {
    options.capacity = capacity;
    Sweep sweep = run_sweep(planner, options);
    return sweep.rows[sweep.best];
  };
  const SweepRow whole = best_with({});
  EXPECT_FALSE(whole.candidate.sharded());
  EXPECT_TRUE(whole.fits);
  const SweepRow divided = best_with(whole.resident - Bytes(1));
  EXPECT_TRUE(divided.candidate.sharded());
  EXPECT_TRUE(divided.fits);
  EXPECT_LT(divided.resident, whole.resident);
  EXPECT_FALSE(best_with(Bytes(1)).fits);
}

TEST(SweepTest, AWatchEndsItAndKeepsTheRowsUntilThen) {
  Planner planner = planner_of("mlp", "a100x8");
  std::vector<std::string> heard;
  int left = 2;
  const Sweep sweep =
      run_sweep(planner,
                {.policies = {policy("torch-ddp", SweptPolicy::Sizes::Each), policy("exact")},
                 .thresholds = {mib(1), mib(2), mib(4)}},
                {.begins = [&](const std::string& name) { heard.push_back(name); },
                 .goes_on = [&] { return --left > 0; }});
  EXPECT_TRUE(sweep.interrupted);
  EXPECT_EQ(sweep.rows.size(), 2U);
  EXPECT_EQ(heard, std::vector<std::string>{"torch-ddp"});
}

}  // namespace
}  // namespace dovetail::search
