// What an exploration calls best: what there is now where no gain can be told from it, else what asks least.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/exploration.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "frameworks/framework.h"
#include "schedule/policies/policies.h"
#include "search/alike.h"

namespace dovetail::answers {
namespace {

Exploration explored(const std::string& workload, const std::string& cluster,
                     const std::vector<std::string>& policies,
                     const std::string& framework = "torch") {
  const auto options_of = [&](const schedule::Program& program) {
    const frameworks::Framework& target = frameworks::framework(framework);
    search::SweepOptions options{.framework = &target,
                                 .policies = search::usual_policies(target, program),
                                 .thresholds = {mib(25)},
                                 .chosen = search::SweepOptions::Chosen::Named};
    for (const std::string& policy : policies) {
      options.policies.push_back({.spec = schedule::parse_policy(policy), .is_named = true});
    }
    return options;
  };
  return explore(
      {.workload = workload, .cluster = cluster, .data_dir = DOVETAIL_SOURCE_DIR "/models"},
      options_of, [](search::Planner& planner, const search::SweepOptions& options) {
        return run_sweep(planner, options);
      });
}

// The best buckets gain little over Megatron's: less than can be told on a machine whose links are known to a fifth.
TEST(ExplorationTest, WhatThereIsNowIsBestWhereNoGainCanBeTold) {
  const Exploration found =
      explored("bert_large", "h100x64", {"exact:wait=end-of-backward"}, "megatron");
  ASSERT_TRUE(found.now);
  ASSERT_TRUE(found.fastest) << "the default is the faster one here: choose other buckets";
  EXPECT_EQ(found.sweep.best, *found.now);
  EXPECT_NE(*found.fastest, *found.now);
  EXPECT_LT(search::step_ns(found.sweep.rows[*found.fastest]), search::step_ns(found.best()));
  EXPECT_TRUE(found.alike[*found.fastest]);
  EXPECT_FALSE(found.alike[found.sweep.best]);
}

// gradient_as_bucket_view saves the copies of 475 MiB: that can be told, however fast the links are.
TEST(ExplorationTest, AGainThatCanBeToldIsSet) {
  const Exploration found = explored("gpt2", "h100x64", {"per-tensor"});
  ASSERT_TRUE(found.now);
  EXPECT_NE(found.sweep.best, *found.now);
  EXPECT_FALSE(found.alike[*found.now]);
  EXPECT_EQ(found.best().candidate.name(), "torch-ddp:cap=25MiB,first=1MiB,mode=view");
}

TEST(ExplorationTest, WhatIsSetCanBeToldFromWhatThereIsNow) {
  int settled = 0;
  for (const char* const workload : {"gpt2", "resnet50", "bert_large"}) {
    for (const char* const cluster : {"h100_efax512", "a100x16_ib"}) {
      const Exploration found =
          explored(workload, cluster,
                   {"torch-ddp:mode=view", "torch-ddp:cap=100MiB,first=100MiB",
                    "exact:wait=end-of-backward"});
      ASSERT_TRUE(found.now) << workload;
      if (!found.fastest || found.sweep.best == *found.now) continue;
      ++settled;
      const std::vector<const schedule::Schedule*> both = {
          &found.best().candidate.schedule, &found.sweep.rows[*found.now].candidate.schedule};
      EXPECT_FALSE(search::alike(found.planner.program(), found.planner.costs(),
                                 predict::uncalibrated_ranges(), both, 0)[1])
          << workload << " on " << cluster;
    }
  }
  EXPECT_GT(settled, 0);
}

// Of a machine that was measured the order is taken as it is.
TEST(ExplorationTest, OnAMeasuredMachineTheFastestIsBest) {
  const Exploration found = explored("mlp-1000mbit", "", {"exact:mode=copy,wait=end-of-backward"});
  EXPECT_TRUE(found.alike.empty());
  for (const search::SweepRow& row : found.sweep.rows) {
    if (row.said) {
      EXPECT_GE(search::step_ns(row), search::step_ns(found.best()));
    }
  }
}

}  // namespace
}  // namespace dovetail::answers
