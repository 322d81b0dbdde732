// calibrate --policy: what plans of a policy need to be measured, and what they do not.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "models/workloads/workload.h"
#include "tests/support/tensor_parallel.h"

namespace dovetail::calibrate {
namespace {

using models::PassKind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

schedule::Program program_of(std::int64_t ranks) {
  return models::load_workload("mlp", ranks, std::string(DOVETAIL_SOURCE_DIR) + "/models").program;
}

CalibrationNeeds needs_of_one(const std::string& policy) {
  return needs_of(program_of(4), std::vector<std::string>{policy});
}

std::vector<schedule::ScheduledProgram> variants_of(const std::string& policy) {
  return wanted_for(program_of(4), std::vector<std::string>{policy}).variants;
}

TEST(CalibrateNeedsTest, GroupingsOfAllReducesNeedNeitherPassesNorOtherCollectives) {
  const std::vector<std::string> policies = {"exact",      "torch-ddp:cap=25MiB,first=1MiB",
                                             "per-tensor", "one-bucket",
                                             "no-overlap", "exact:mode=copy,wait=end-of-backward"};
  const CalibrationNeeds needs = needs_of(program_of(2), policies);
  EXPECT_THAT(needs.passes, IsEmpty());
  EXPECT_FALSE(needs.further_collectives);
  EXPECT_THAT(wanted_for(program_of(2), policies).variants, IsEmpty());
}

TEST(CalibrateNeedsTest, ShardsNeedTheirUpdateAndTheHalvesOfAllReduces) {
  for (const char* policy : {"sharded:cap=25MiB", "fsdp"}) {
    const CalibrationNeeds needs = needs_of_one(policy);
    EXPECT_THAT(needs.passes, ::testing::Contains(PassKind::ShardUpdate)) << policy;
    EXPECT_TRUE(needs.further_collectives) << policy;
    EXPECT_EQ(variants_of(policy).size(), 2U) << policy;
  }
}

TEST(CalibrateNeedsTest, MicroStepsNeedTheirSums) {
  const CalibrationNeeds needs = needs_of_one("exact:k=2");
  EXPECT_THAT(needs.passes, ::testing::Contains(PassKind::Accumulate));
  EXPECT_FALSE(needs.further_collectives);
  EXPECT_EQ(variants_of("exact:k=2").size(), 1U);
}

TEST(CalibrateNeedsTest, AllPoliciesTogetherNeedWhatEachOfThemNeeds) {
  const std::vector<std::string> policies = {"exact", "gradient-merge:k=2", "sharded"};
  const CalibrationNeeds needs = needs_of(program_of(4), policies);
  EXPECT_TRUE(needs.further_collectives);
  EXPECT_EQ(wanted_for(program_of(4), policies).variants.size(), 3U);
}

TEST(CalibrateNeedsTest, ReductionsOverFewerRanksThanAllAreFurtherCollectives) {
  const std::vector<std::string> policies = {"per-tensor"};
  EXPECT_TRUE(needs_of(testing::tensor_parallel(), policies).further_collectives);
}

TEST(CalibrateNeedsTest, WhatCannotBeAppliedIsRefusedWithThePolicy) {
  const std::vector<std::string> typo = {"exakt"};
  EXPECT_THROW(require_policies(typo), InputError);
  try {
    needs_of_one("pipeline:stages=3,k=4");
    FAIL() << "four ranks were cut into three stages";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--policy pipeline:stages=3,k=4: "));
  }
}

TEST(CalibrateNeedsTest, PoliciesAreNotedInOneLine) {
  const std::vector<std::string> policies = {"exact", "torch-ddp:cap=1MiB,first=1MiB"};
  EXPECT_EQ(in_one_line(policies), "exact; torch-ddp:cap=1MiB,first=1MiB");
}

}  // namespace
}  // namespace dovetail::calibrate
