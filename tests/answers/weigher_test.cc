// One weigher answers every question, and what is asked as a policy, a plan file or groups of gradients is one answer.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/weigher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "answers/job_prediction.h"
#include "base/error.h"
#include "base/file.h"
#include "models/networks/text.h"
#include "schedule/plan_json.h"

namespace dovetail::answers {
namespace {

const std::string kData = DOVETAIL_SOURCE_DIR "/models";

Question small_job() {
  return {.job = DOVETAIL_SOURCE_DIR
          "/tests/models/networks/data/tiny_llama/config.json:dp=2,gbs=4,seq=64",
          .cluster = "h100x8"};
}

TEST(WeigherTest, APolicyItsPlanAndItsGroupsAreOneAnswer) {
  Weigher weigher(kData);
  Question asked{.workload = "resnet18", .cluster = "a100x8", .policy = "threshold:cap=8MiB"};
  const Outcome by_policy = weigher.weigh(asked);
  schedule::Plan plan;
  weigher.at_site(asked, [&](Site& site) { plan = site.plan(asked).plan; });
  ASSERT_TRUE(plan.summary.predicted);
  EXPECT_EQ(plan.summary.predicted->step, by_policy.step);
  EXPECT_EQ(plan.summary.predicted->exposed, by_policy.exposed.total);
  EXPECT_EQ(plan.summary.predicted->lower_bound, by_policy.bound->time);
  EXPECT_EQ(plan.schedule, by_policy.schedule);

  const std::string file = ::testing::TempDir() + "weigher_plan.json";
  write_file(file, schedule::plan_to_json(plan));
  EXPECT_EQ(weigher.weigh({.workload = "resnet18", .cluster = "a100x8", .plan = file}).step,
            by_policy.step);

  std::vector<std::vector<std::string>> names;
  schedule::NamedGroups groups;
  for (const schedule::Bucket& bucket : by_policy.schedule.buckets) {
    std::vector<std::string>& of_bucket = names.emplace_back();
    for (const schedule::Slice& part : bucket.gradients) {
      of_bucket.push_back(plan.program.tensor(part.tensor).name);
    }
  }
  for (const auto& of_bucket : names) groups.emplace_back(of_bucket.begin(), of_bucket.end());
  asked.policy = "per-tensor";
  asked.groups = groups;
  const Outcome by_groups = weigher.weigh(asked);
  EXPECT_EQ(by_groups.step, by_policy.step);
  EXPECT_EQ(by_groups.policy, "");
}

TEST(WeigherTest, AJobAsItIsAndByItsOwnPolicyTakesAsLong) {
  Weigher weigher(kData);
  Question asked = small_job();
  const Outcome as_it_is = weigher.weigh(asked);
  ASSERT_TRUE(as_it_is.job);
  asked.policy = as_it_is.policy;
  const Outcome by_policy = weigher.weigh(asked);
  EXPECT_EQ(by_policy.step, as_it_is.step);
  EXPECT_EQ(by_policy.job->job, as_it_is.job->job);
  EXPECT_EQ(by_policy.memory.held, as_it_is.memory.held);
  EXPECT_EQ(by_policy.micro_steps, as_it_is.micro_steps);
  ASSERT_TRUE(as_it_is.exposed.by_purpose);
  Duration sum{};
  for (const Duration part : *as_it_is.exposed.by_purpose) sum += part;
  EXPECT_EQ(sum, as_it_is.exposed.total);
  EXPECT_EQ(as_it_is.compute + as_it_is.exposed.total + *as_it_is.job->bubble, as_it_is.step);
}

// What is typed may say k= again; the type of the sums stays the job's.
TEST(WeigherTest, APolicyThatSaysTheMicroBatchesAgainKeepsTheTypeOfTheJobsSums) {
  Weigher weigher(kData);
  Question asked = small_job();
  asked.job += ",mbs=1,reduce=bf16";
  asked.policy = "torch-ddp:cap=25MiB";
  const std::string without = weigher.weigh(asked).policy;
  EXPECT_THAT(without, ::testing::HasSubstr("sums=bf16"));
  asked.policy = "torch-ddp:cap=25MiB,k=2";
  EXPECT_EQ(weigher.weigh(asked).policy, without);
  asked.policy = "torch-ddp:cap=25MiB,k=4";
  EXPECT_THROW(static_cast<void>(weigher.weigh(asked)), InputError);
}

// dp_shard divides parameters: what runs then is FSDP, and no all-reduce of whole gradients.
TEST(WeigherTest, ALayoutThatDividesParametersIsAskedAsFsdpUnlessAPolicyIsNamed) {
  Weigher weigher(kData);
  Question asked{.workload = "resnet18", .cluster = "a100x8"};
  EXPECT_THAT(weigher.weigh(asked).policy, ::testing::StartsWith("exact"));
  asked.layout = schedule::DataParallel{.dp = 1, .dp_shard = 8};
  EXPECT_THAT(weigher.weigh(asked).policy, ::testing::StartsWith("fsdp"));
  asked.policy = "torch-ddp";
  EXPECT_THAT(weigher.weigh(asked).policy, ::testing::StartsWith("torch-ddp"));
}

TEST(WeigherTest, WhatIsLeftIsDownToTheBoundElseWhatIsExposed) {
  Outcome bounded{.step = Duration(100)};
  bounded.exposed.total = Duration(30);
  EXPECT_EQ(bounded.left(), Duration(30));
  bounded.bound = search::Bound{.time = Duration(80), .schedules = {}, .problem = {}};
  EXPECT_EQ(bounded.left(), Duration(20));
  EXPECT_DOUBLE_EQ(*bounded.gap(), 25);
}

TEST(WeigherTest, AQuestionNamesOneSubjectAndAJobItsMachine) {
  const auto refusal = [](const Question& question) -> std::string {
    try {
      question.require_subject("here");
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(refusal({}), "here: name a workload or a job");
  EXPECT_EQ(refusal({.workload = "a", .job = "b"}), "here: name a workload or a job, not both");
  EXPECT_EQ(refusal({.job = "b"}), "here: a job needs a cluster");
  EXPECT_EQ(refusal({.job = "b", .cluster = "c", .world = 8}),
            "here: a job says its ranks and its layout itself");
  EXPECT_EQ(refusal({.workload = "a"}), "none");
}

}  // namespace
}  // namespace dovetail::answers
