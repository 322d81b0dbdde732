// What the tool's sentences about its own numbers say, held against small cases that once broke them:
// one step time everywhere, a lower bound that says what it covers, plans that can be predicted again.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "tests/cli/asked.h"

namespace dovetail::cli {
namespace {

using ::testing::AllOf;
using testing::ask;
using testing::Ended;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::number_after;

class ClaimsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("dovetail_claims_" +
                  std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) +
                  "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (directory_ / name).string();
  }
  std::string written(const std::string& name, const std::string& text) const {
    write_file(path(name), text);
    return path(name);
  }
  // A profile: its section and what else stands beside it.
  std::string profile(const std::string& name, const std::string& section,
                      const std::string& rest) const {
    return written(name, R"({"name": "small", )" + rest + R"(, "profile": )" + section + "}");
  }

 private:
  std::filesystem::path directory_;
};

// Two unlike ranks whose steps take 44.9 and 35.1 ms in turn (tests/sim/steady_test.cc). Rank 1
// computes for 40.0 ms, so no step takes less on average.
constexpr const char* kUnlikeRanks = R"({"forward_us": 10, "backward_us": 20, "optimizer_us": 5400,
  "gradients": [{"name": "g0", "numel": 1000000, "dtype": "float32", "ready_us": 20,
                 "ready_us_rank1": 4000}],
  "rank1": {"forward_us": 1000, "backward_us": 38900, "optimizer_us": 100}})";
constexpr const char* kQueueOfOwn = R"("world_size": 2,
  "all_reduce_alone": [{"bytes": 4, "us": 34500}, {"bytes": 8000000, "us": 34500.001}],
  "all_reduce_queue_of_8": [{"bytes_each": 4, "us_for_8": 192000},
                            {"bytes_each": 8000000, "us_for_8": 192000.008}])";

TEST_F(ClaimsTest, StepsThatTakeTurnsAreNotFasterThanTheirBound) {
  const std::string workload = profile("turns.json", kUnlikeRanks, kQueueOfOwn);
  const Ended plan = ask("plan --workload " + workload + " --policy exact -o " + path("plan.json"));
  EXPECT_THAT(plan.output,
              AllOf(HasSubstr("predicted step 40.000 ms"), HasSubstr("lower bound 40.000 ms")));
  const Ended explore = ask("explore --workload " + workload);
  EXPECT_EQ(explore.code, 0) << explore.output;
  EXPECT_THAT(explore.output,
              AllOf(HasSubstr("is faster than 40 ms"), Not(HasSubstr("does not hold"))));
  EXPECT_THAT(ask("predict --plan " + path("plan.json")).output,
              HasSubstr("steps take turns in cycles of 2: 40.000 ms on average"));
}

// The machine of a plan from a profile's file is the profile: by itself, and named with --cluster.
TEST_F(ClaimsTest, APlanOfAProfileFileCanBePredictedAgain) {
  const std::string workload = profile("turns.json", kUnlikeRanks, kQueueOfOwn);
  ask("plan --workload " + workload + " --policy exact -o " + path("plan.json"));
  for (const std::string& cluster : {std::string(), " --cluster " + workload}) {
    const Ended predicted = ask("predict --plan " + path("plan.json") + cluster);
    EXPECT_EQ(predicted.code, 0) << predicted.output;
    EXPECT_THAT(predicted.output, HasSubstr("on small; predicted"));
  }
}

TEST_F(ClaimsTest, AClusterIsAnyFileThatExists) {
  const std::string here = path("here");  // neither a folder nor an ending in its name
  std::filesystem::copy_file(std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters/a100x8.json",
                             here);
  const std::string tool(DOVETAIL_TOOL);
  const Ended ended = testing::run_command("cd " + path("") + " && " + tool +
                                           " plan --workload mlp --cluster here -o plan.json");
  EXPECT_EQ(ended.code, 0) << ended.output;
}

// On one rank nothing travels: the table beside the profile is of no use, and bounds nothing.
TEST_F(ClaimsTest, OneRankIsBoundedByItsCompute) {
  const std::string workload = profile(
      "one.json",
      R"({"forward_us": 10, "backward_us": 20, "optimizer_us": 30,
                  "gradients": [{"name": "g0", "numel": 1000, "dtype": "float32", "ready_us": 20}]})",
      R"("world_size": 1, "all_reduce_alone": [{"bytes": 4, "us": 500}, {"bytes": 8000, "us": 900}])");
  const Ended explore = ask("explore --workload " + workload);
  EXPECT_EQ(explore.code, 0) << explore.output;
  EXPECT_THAT(explore.output, HasSubstr("is faster than 60 us"));
}

// A section that says that compute is not slowed down is none.
TEST_F(ClaimsTest, ASlowDownOfOneIsNoSlowDown) {
  const std::string section = R"({"forward_us": 10, "backward_us": 2000, "optimizer_us": 30,
    "gradients": [{"name": "g0", "numel": 1000, "dtype": "float32", "ready_us": 100},
                  {"name": "g1", "numel": 1000, "dtype": "float32", "ready_us": 1900}]})";
  const std::string rest = R"("world_size": 8,
    "all_reduce_alone": [{"bytes": 4, "us": 500}, {"bytes": 8000, "us": 900}])";
  const auto step = [&](const std::string& more) {
    const std::string workload = profile("slow.json", section, rest + more);
    const Ended plan =
        ask("plan --workload " + workload + " --policy per-tensor -o " + path("p.json"));
    return number_after(plan.output, "predicted step ");
  };
  const double none = step("");
  EXPECT_EQ(step(R"(, "compute_slowdown_while_communicating": {"backward": 1})"), none);
  EXPECT_GT(step(R"(, "compute_slowdown_while_communicating": {"backward": 1.5})"), none);
}

// plan, predict and explore say the same, to the last digit that they print.
TEST_F(ClaimsTest, PlanAndPredictTellOneStepTime) {
  for (const std::string policy :
       {"pipeline:kind=1f1b,stages=2,k=8", "torch-ddp", "sharded:cap=8MiB,gather=next-forward",
        "gradient-merge:k=2", "naive"}) {
    const std::string cluster = " --cluster a100x4_pcie";
    const Ended plan =
        ask("plan --workload mlp" + cluster + " --policy " + policy + " -o " + path("plan.json"));
    ASSERT_EQ(plan.code, 0) << plan.output;
    const Ended predicted = ask("predict --plan " + path("plan.json"));
    EXPECT_NEAR(number_after(predicted.output, "step time"),
                number_after(plan.output, "predicted step "), 0.0006)
        << policy;
  }
}

TEST_F(ClaimsTest, SeveralStreamsAreSaidToShareTheLink) {
  ask("plan --workload mlp --cluster a100x8 --policy per-tensor -o " + path("plan.json"));
  EXPECT_THAT(ask("predict --plan " + path("plan.json")).output,
              Not(HasSubstr("communication streams")));
  const std::string edit = "sed -i '0,/\"stream\": \"comm0\"/s//\"stream\": \"comm1\"/' ";
  testing::run_command(edit + path("plan.json"));
  EXPECT_THAT(ask("predict --plan " + path("plan.json")).output,
              HasSubstr("2 communication streams share the link"));
}

// An op that takes a second more makes the step a second longer.
TEST_F(ClaimsTest, CostsAreWrittenAndReadAgainAsTheyWereEdited) {
  ask("plan --workload mlp --cluster a100x8 --policy no-overlap -o " + path("plan.json"));
  const std::string predict = "predict --plan " + path("plan.json");
  const double step =
      number_after(ask(predict + " --costs " + path("costs.json")).output, "step time");
  EXPECT_EQ(number_after(ask(predict + " --cluster " + path("costs.json")).output, "step time"),
            step);
  testing::run_command("sed -i '0,/^    [0-9.]*$/s//    1000000.0/' " + path("costs.json"));
  EXPECT_GT(number_after(ask(predict + " --cluster " + path("costs.json")).output, "step time"),
            step + 990);
  testing::run_command("sed -i 's/\"knots\"/\"knotz\"/' " + path("costs.json"));
  const Ended broken = ask(predict + " --cluster " + path("costs.json"));
  EXPECT_EQ(broken.code, 2);
  EXPECT_THAT(broken.output, HasSubstr("costs.json: /collectives/0"));
}

// The same model captured twice: forward takes 5 ms longer the second time, and gradients become ready in
// another order.
TEST_F(ClaimsTest, APlanIsPredictedWithTheDurationsOfALaterCapture) {
  const std::string rest = R"("world_size": 8,
    "all_reduce_alone": [{"bytes": 4, "us": 500}, {"bytes": 8000, "us": 900}])";
  const auto captured = [&](const std::string& name, const std::string& forward,
                            const std::string& gradients, const std::string& conditions) {
    return profile(name,
                   R"({"forward_us": )" + forward +
                       R"(, "backward_us": 2000, "optimizer_us": 30, "gradients": [)" + gradients +
                       "]}",
                   rest + conditions);
  };
  const std::string a = R"({"name": "a", "numel": 1000, "dtype": "float32", "ready_us": )";
  const std::string b = R"({"name": "b", "numel": 2000, "dtype": "float32", "ready_us": )";
  const std::string first = captured("first.json", "10", a + "100}, " + b + "1900}", "");
  const std::string invalid =
      R"(, "conditions": {"valid": false, "why_not_valid": ["the cores were busy"]})";
  const std::string second = captured("second.json", "5010", b + "100}, " + a + "1900}", invalid);
  ask("plan --workload " + first + " --policy one-bucket -o " + path("plan.json"));
  const std::string predict = "predict " + path("plan.json");
  const double step = number_after(ask(predict).output, "step time");
  EXPECT_EQ(number_after(ask(predict + " --workload " + first).output, "step time"), step);
  const Ended refused = ask(predict + " --workload " + second);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("is not valid: the cores were busy"));
  const Ended later = ask(predict + " --force --workload " + second);
  EXPECT_NEAR(number_after(later.output, "step time"), step + 5, 0.0011) << later.output;
  EXPECT_THAT(later.output, HasSubstr("the schedule is the plan's, durations are those of"));

  const std::string more =
      captured("more.json", "10",
               a + "100}, " + b + "500}, " +
                   R"({"name": "c", "numel": 9, "dtype": "float32", "ready_us": 1900})",
               "");
  EXPECT_THAT(ask(predict + " --workload " + more).output, HasSubstr("c.grad"));
  const std::string other = captured(
      "other.json", "10", R"({"name": "z", "numel": 9, "dtype": "float32", "ready_us": 1900})", "");
  const Ended no = ask(predict + " --workload " + other);
  EXPECT_EQ(no.code, 2);
  EXPECT_THAT(no.output, AllOf(HasSubstr("/buckets/0/gradients/0"), HasSubstr("other.json")));
  EXPECT_THAT(ask(predict + " --force").output, HasSubstr("--force is about a --workload"));
}

// 30 MiB and 3 bytes more: no rank can reduce three quarters of an element.
TEST_F(ClaimsTest, ABufferOfPartsOfElementsIsIllegal) {
  ask("plan --workload mlp --cluster a100x8 --policy one-bucket -o " + path("plan.json"));
  testing::run_command("sed -i 's/\"pad_to_bytes\": 1/\"pad_to_bytes\": 5/' " + path("plan.json"));
  EXPECT_THAT(ask("show " + path("plan.json")).output,
              HasSubstr("bucket 0: its 31649835 bytes are not whole elements of 4 bytes"));
}

}  // namespace
}  // namespace dovetail::cli
