// From a policy to measured values: plan, predict, run on local ranks, compare.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "schedule/program_json.h"
#include "tests/cli/asked.h"
#include "tests/support/programs.h"

namespace dovetail {
namespace {

using dovetail::testing::ask;
using dovetail::testing::Ended;
using dovetail::testing::run_tool;
using ::testing::HasSubstr;
using ::testing::Not;

class PolicyRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = std::filesystem::temp_directory_path() /
                 ("dovetail-run-" + std::string(info->name()) + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
    write_file(file("step.json"), schedule::program_to_json(step()));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string file(const std::string& name) const {
    return (directory_ / name).string();
  }

  // Four layers of 1000 to 4000 gradient elements on two ranks, work of a few kilobytes.
  static schedule::Program step() {
    using dovetail::testing::us;
    std::vector<dovetail::testing::Layer> layers;
    for (const std::int64_t elements : {1000, 3000, 4000, 2000}) {
      layers.push_back({us(1), us(2), Bytes(4 * elements), us(1)});
    }
    schedule::Program program = dovetail::testing::chain(layers, 2);
    for (schedule::Op& op : program.ops) {
      op.work = schedule::MemoryWork{.bytes = kib(16), .flop = Flop(4096)};
    }
    return program;
  }

  // The four commands agree: no value is wrong, and both traces hold the same commands.
  void expect_runs(const std::string& policy, const std::string& cluster, int ranks) const {
    SCOPED_TRACE(policy);
    const Ended planned =
        ask("plan --workload " + file("step.json") + " --cluster " + cluster + " --policy " +
            policy + " -o " + file("plan.json") + " --trace " + file("predicted.json"));
    ASSERT_EQ(planned.code, 0) << planned.output;
    const Ended simulated = ask("predict --plan " + file("plan.json") + " --cluster " + cluster);
    EXPECT_EQ(simulated.code, 0) << simulated.output;
    const Ended measured =
        run_tool("run --plan " + file("plan.json") + " --ranks " + std::to_string(ranks) +
                 " --warmup 0 --steps 2 --rounds 1 --trace " + file("measured.json"));
    EXPECT_EQ(measured.code, 0) << measured.output;
    EXPECT_THAT(measured.output, HasSubstr(" gradient elements, 0 wrong"));
    const Ended compared = ask("compare " + file("predicted.json") + " " + file("measured.json"));
    EXPECT_EQ(compared.code, 0) << compared.output;
    EXPECT_THAT(compared.output, HasSubstr("step time"));
  }

  std::filesystem::path directory_;
};

TEST_F(PolicyRunTest, PI1EveryPolicyOfTheDataParallelPassHasTheRightValues) {
  for (const char* policy :
       {"naive", "paddle-pass", "source-first-fit:cap=16KB", "source-improved:cap=16KB",
        "source-improved:cap=16KB,scale=optimizer", "source-improved:scale=before-collective"}) {
    expect_runs(policy, "a100x2_nv12", 2);
  }
}

TEST_F(PolicyRunTest, GMI2EverySyncPointOfMergedMicroStepsHasTheRightValues) {
  for (const char* policy : {"gradient-merge:k=2,sync=every", "gradient-merge:k=4,sync=after",
                             "gradient-merge:k=4,sync=last", "torch-ddp:cap=8KB,first=4KB,k=2"}) {
    expect_runs(policy, "a100x2_nv12", 2);
  }
}

TEST_F(PolicyRunTest, AI1ShardedUpdatesHaveTheRightValues) {
  for (const char* policy :
       {"sharded:cap=16KB,p=1", "apex-sharded:cap=16KB",
        "sharded:cap=16KB,p=2,k=2,gather=next-forward", "sharded:cap=16KB,p=1,reduce=all-reduce",
        "sharded:p=1,mode=view,reduce=all-reduce+threshold:cap=16KB"}) {
    expect_runs(policy, "a100x2_nv12", 2);
  }
}

TEST_F(PolicyRunTest, AI8APipelineOfTwoStagesHasTheRightValues) {
  expect_runs("pipeline:stages=2,k=2", "a100x2_nv12", 4);
}

TEST_F(PolicyRunTest, ExposedCommunicationIsReportedByThreeDefinitions) {
  const auto planned = [&](const std::string& policy, const std::string& name) {
    const Ended ended = ask("plan --workload " + file("step.json") +
                            " --cluster a100x2_nv12 --policy " + policy + " -o " + file(name));
    ASSERT_EQ(ended.code, 0) << ended.output;
  };
  planned("naive", "naive.json");
  planned("threshold:cap=16KB", "threshold.json");
  const std::string plans = "--plan " + file("naive.json") + " --plan " + file("threshold.json");
  const Ended ended =
      run_tool("run " + plans + " --ranks 2 --warmup 0 --steps 3 --rounds 1 --exposed --json");
  ASSERT_EQ(ended.code, 0) << ended.output;
  const auto report = nlohmann::json::parse(ended.output);
  EXPECT_THAT(report.at("belief").get<std::string>(),
              HasSubstr("was made for a100x2_nv12, not for this machine"));
  ASSERT_EQ(report.at("rows").size(), 2U);
  for (const auto& row : report.at("rows")) {
    const double step = row.at("measured_step_us");
    const double alone = row.at("step_without_communication_us");
    const auto& exposed = row.at("exposed_us");
    EXPECT_GT(alone, 0);
    EXPECT_NEAR(exposed.at("difference").get<double>(), step - alone, 0.01);
    // A thread that is held up in an op may find its collectives done: then nothing is exposed.
    for (const char* definition : {"stalls", "uncovered"}) {
      EXPECT_GE(exposed.at(definition).get<double>(), 0) << definition;
      EXPECT_LE(exposed.at(definition).get<double>(), step) << definition;
    }
    EXPECT_EQ(row.at("wrong_elements"), 0);
  }
  // The naive program's collectives stand on the compute stream, where nothing runs meanwhile.
  const auto& inline_collectives = report.at("rows").at(0).at("exposed_us");
  EXPECT_GT(inline_collectives.at("stalls").get<double>(), 0);
  EXPECT_GT(inline_collectives.at("uncovered").get<double>(), 0);
}

// Values, not times. The label stands in the report, the JSON and the trace.
TEST_F(PolicyRunTest, APacedRunHasTheRightValuesAndSaysWhatItIs) {
  const std::string link = "paced by the ranks themselves at 200mbit (not a shaped link)";
  ASSERT_EQ(
      ask("plan --workload " + file("step.json") + " --cluster a100x2_nv12 -o " + file("plan.json"))
          .code,
      0);
  const std::string run = "run --plan " + file("plan.json") +
                          " --ranks 2 --rate 0.2Gbit --warmup 0 --steps 2 --rounds 1 --trace " +
                          file("measured.json");
  const Ended text = run_tool(run);
  ASSERT_EQ(text.code, 0) << text.output;
  EXPECT_THAT(text.output, HasSubstr("link: " + link + ";"));
  EXPECT_THAT(text.output, HasSubstr(" gradient elements, 0 wrong"));
  EXPECT_THAT(text.output, Not(HasSubstr("loopback")));
  EXPECT_THAT(read_file(file("measured.json")), HasSubstr(link));
  const Ended ended = run_tool(run + " --json");
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(nlohmann::json::parse(ended.output).at("link"), link);
  // Faster than loopback carries without work: paced, and still not to be trusted.
  EXPECT_THAT(run_tool("run --plan " + file("plan.json") +
                       " --ranks 2 --rate 10gbit --warmup 0 --steps 2 --rounds 1")
                  .output,
              HasSubstr("at 10gbit over loopback, where beyond 2gbit communication is processor"));
}

// A plan made from a calibration tells over which link that was measured.
TEST_F(PolicyRunTest, ThePlanKnowsTheLinkOfItsCalibration) {
  const Ended planned = ask("plan --workload mlp-1000mbit --cluster " DOVETAIL_SOURCE_DIR
                            "/traces/measured/mlp-1gbit-machine.json -o " +
                            file("plan.json"));
  ASSERT_EQ(planned.code, 0) << planned.output;
  EXPECT_THAT(planned.output, HasSubstr("note: link: namespaces dovetailN"));
  EXPECT_EQ(nlohmann::json::parse(read_file(file("plan.json"))).at("link"), "namespaces dovetailN");
}

TEST_F(PolicyRunTest, ARunOverAnotherLinkThanPlannedSaysSo) {
  const std::string paced = "paced by the ranks themselves at 1gbit (not a shaped link)";
  ASSERT_EQ(
      ask("plan --workload " + file("step.json") + " --cluster a100x2_nv12 -o " + file("plan.json"))
          .code,
      0);
  auto plan = nlohmann::ordered_json::parse(read_file(file("plan.json")));
  plan["link"] = paced;
  write_file(file("plan.json"), plan.dump(1));
  const std::string run =
      "run --plan " + file("plan.json") + " --ranks 2 --warmup 0 --steps 2 --rounds 1";
  EXPECT_THAT(run_tool(run).output, HasSubstr("plan.json was planned for another link: " + paced));
  const Ended same = run_tool(run + " --rate 1000mbit");
  EXPECT_EQ(same.code, 0) << same.output;
  EXPECT_THAT(same.output, Not(HasSubstr("another link")));
}

TEST_F(PolicyRunTest, ExposedIsRefusedWhereOpsCommunicate) {
  ASSERT_EQ(ask("plan --workload " + file("step.json") +
                " --cluster a100x2_nv12 --policy pipeline:stages=2,k=2 -o " + file("plan.json"))
                .code,
            0);
  const Ended ended = run_tool("run --plan " + file("plan.json") + " --ranks 4 --exposed");
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("communicates, and other ops need its data"));
}

}  // namespace
}  // namespace dovetail
