// What dovetail show prints of plans, and the words in which bad ones are refused, line by line.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "tests/cli/asked.h"
#include "tests/support/golden.h"

namespace dovetail {
namespace {

using dovetail::testing::Ended;

// Plans of an mlp of 8 gradients on 8 ranks, in a directory of the test's own.
class ShowTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = std::filesystem::temp_directory_path() /
                 ("dovetail-show-" + std::string(info->name()) + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string path() const { return (directory_ / "plan.json").string(); }

  [[nodiscard]] Ended plan(const std::string& policy) const {
    return dovetail::testing::ask("plan --workload mlp --cluster a100x8 --policy " + policy +
                                  " -o " + path());
  }

  [[nodiscard]] std::string shown(const std::string& policy) const {
    const Ended planned = plan(policy);
    if (planned.code != 0) return planned.output;
    return dovetail::testing::ask("show " + path()).output;
  }

  std::filesystem::path directory_;
};

TEST_F(ShowTest, TheSynchronousProgramReducesAndScalesOnTheComputeStream) {
  EXPECT_TRUE(matches_golden("cli/show_naive.txt", shown("naive")));
}

TEST_F(ShowTest, P20ThePassOfPaddleFoldsTheScaleAndFusesByElements) {
  EXPECT_TRUE(matches_golden("cli/show_paddle_pass.txt", shown("paddle-pass")));
}

TEST_F(ShowTest, TheImprovedPassCountsBytesAndWaitsForEvents) {
  EXPECT_TRUE(matches_golden("cli/show_source_improved.txt",
                             shown("source-improved:cap=8MiB,scale=optimizer")));
}

TEST_F(ShowTest, GM7MicroStepsThatEachReduceAreSummedAfterwards) {
  EXPECT_TRUE(matches_golden("cli/show_merge_every.txt", shown("gradient-merge:k=2,sync=every")));
}

TEST_F(ShowTest, A10ShardsOfMergedGradientsGoInBatches) {
  EXPECT_TRUE(matches_golden("cli/show_sharded.txt", shown("sharded:cap=8MiB,p=2,k=2")));
}

TEST_F(ShowTest, A13ThePresetOfApexWaitsForTheBatchBefore) {
  EXPECT_TRUE(matches_golden("cli/show_apex_sharded.txt", shown("apex-sharded:cap=8MiB,p=1")));
}

TEST_F(ShowTest, AS2APipelineKeepsItsBucketsWithinStages) {
  EXPECT_TRUE(matches_golden("cli/show_pipeline.txt", shown("pipeline:kind=1f1b,stages=2,k=4")));
}

TEST_F(ShowTest, EveryPolicyIsListedWithItsOptions) {
  EXPECT_TRUE(
      matches_golden("cli/show_policies.txt", dovetail::testing::ask("show policies").output));
}

// Each ends with exit code 2 and one line, and leaves no file behind.
TEST_F(ShowTest, RefusalsSayTheRuleInWords) {
  std::string text;
  for (const char* policy :
       {"paddle-pas", "source-first-fit:cap=1MiB,elements=5", "naive:gather=next-forward",
        "threshold:wait=before-next-batch", "source-improved:k=2,sync=sometimes",
        "source-improved:sync=every", "source-improved:scale=nowhere", "sharded:cap=1MiB,mode=view",
        "sharded:replicas=nodes", "sharded:p=0",
        "threshold:batch=2,k=2,sync=after,wait=before-next-batch", "pipeline:stages=1",
        "pipeline:stages=9", "pipeline:kind=interleaved",
        "pipeline:kind=interleaved,stages=2,chunks=2,k=3", "pipeline:sync=every"}) {
    const Ended ended = plan(policy);
    EXPECT_EQ(ended.code, 2) << policy;
    EXPECT_FALSE(std::filesystem::exists(path())) << policy;
    text += "$ plan --policy " + std::string(policy) + "\n" + ended.output;
  }
  EXPECT_TRUE(matches_golden("cli/refusals.txt", text));
}

TEST_F(ShowTest, WeightsThatTwoStagesShareAreRefused) {
  const Ended ended = dovetail::testing::ask(
      "plan --workload gpt2 --cluster a100x8 --policy pipeline -o " + path());
  EXPECT_EQ(ended.code, 2) << ended.output;
  EXPECT_NE(ended.output.find("weights shared by stages are not supported"), std::string::npos)
      << ended.output;
  EXPECT_NE(ended.output.find("wte.weight"), std::string::npos) << ended.output;
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(ShowTest, AFormatIsShownFieldByField) {
  EXPECT_TRUE(matches_golden("cli/show_schema_trace.txt",
                             dovetail::testing::ask("show dovetail.trace/1").output));
}

TEST_F(ShowTest, EveryFormatThatIsListedHasASchema) {
  const std::string list = dovetail::testing::ask("show schemas").output;
  for (const std::string name : {"cluster", "costs", "plan", "program", "trace"}) {
    const std::string schema = "dovetail." + name + "/1";
    EXPECT_NE(list.find(schema), std::string::npos) << list;
    const std::string text = dovetail::testing::ask("show " + schema + " --json").output;
    EXPECT_NE(text.find("\"const\": \"" + schema + "\""), std::string::npos) << text;
    EXPECT_EQ(text.find("\"tool\": {\"name\""), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace dovetail
