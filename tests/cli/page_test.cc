// Reports as a person would make them: --html, and dovetail report.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "tests/cli/asked.h"
#include "tests/support/job_models.h"

namespace dovetail::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// As it is printed, but for where its lines are broken.
std::string answer_in_words(const json& answer) {
  std::string words = "set:";
  for (const json& line : answer.at("set")) words += " " + line.get<std::string>();
  if (answer.at("set").empty()) words += " " + answer.at("nothing").get<std::string>();
  return words + " gives: " + answer.at("gives").get<std::string>() +
         " left: " + answer.at("left").get<std::string>();
}

std::string with_single_blanks(const std::string& text) {
  std::string words;
  for (const char c : text) {
    const char blank = c == '\n' ? ' ' : c;
    if (blank != ' ' || (!words.empty() && words.back() != ' ')) words += blank;
  }
  return words;
}

const std::string kSmallJob = kShortLlama + ":dp=2,gbs=2,seq=128 --cluster h100x2";

class PageCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = std::filesystem::temp_directory_path() /
                 ("dovetail-page-" + std::string(info->name()) + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string file(const std::string& name) const {
    return (directory_ / name).string();
  }

  // The JSON that stands in a page.
  static json figures(const std::string& path) {
    const std::string page = read_file(path);
    const std::string begin = "<script type=\"application/json\" id=\"report\">";
    const std::size_t from = page.find(begin) + begin.size();
    return json::parse(page.substr(from, page.find("</script>", from) - from));
  }

  void expect_same_lines(const std::string& command) const {
    const Ended ended = ask(command + " --html " + file("a.html"));
    ASSERT_EQ(ended.code, 0) << ended.output;
    const std::string printed = ended.output.substr(0, ended.output.find("\n\n"));
    EXPECT_EQ(answer_in_words(figures(file("a.html")).at("answer")), with_single_blanks(printed));
  }

  static void expect_refused(const std::string& arguments, const std::string& words) {
    const Ended ended = ask(arguments);
    EXPECT_EQ(ended.code, 2) << arguments;
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(words));
  }

  std::filesystem::path directory_;
};

// A timeline of two stages: what they send each other are arrows between their compute streams.
TEST_F(PageCommandTest, APipelineShowsItsBubbleAndItsMessages) {
  const std::string policy = " --policy pipeline:stages=2,k=4 --html ";
  ASSERT_EQ(ask("plan --workload resnet18 --cluster a100x8" + policy + file("pp.html")).code, 0);
  const json report = figures(file("pp.html"));
  const json& line = report.at("timelines").at(0);
  EXPECT_EQ(report.at("usual"), nullptr);  // DDP's default trains another batch
  const json& stages = report.at("results").at(0).at("rows");
  EXPECT_EQ(line.at("bubble_us"), stages.at(0).at("bubble_us"));
  ASSERT_FALSE(line.at("arrows").empty());
  for (const json& arrow : line.at("arrows")) {
    const json& from = line.at("rows").at(arrow.at("from_row").get<std::size_t>());
    const json& to = line.at("rows").at(arrow.at("to_row").get<std::size_t>());
    EXPECT_EQ(from.at("name"), "compute");
    EXPECT_NE(from.at("rank"), to.at("rank"));
  }
  bool any_bubble = false;
  for (const json& span : line.at("spans")) {
    EXPECT_GE(span.at("start_us"), 0);
    any_bubble = any_bubble || span.at("what") == "bubble";
  }
  EXPECT_TRUE(any_bubble);
  EXPECT_TRUE(line.at("memory").empty());  // nobody says what a micro-batch keeps
}

TEST_F(PageCommandTest, TheMemoryOfAJobOverTimeReachesThePeakOfItsRow) {
  ASSERT_EQ(ask("explore --job " + kShortLlama + ":pp=2,dp=2,gbs=8 --cluster h100x4 --html " +
                file("j.html"))
                .code,
            0);
  const json report = figures(file("j.html"));
  const json& jobs = report.at("results").at(0);
  std::int64_t most = 0;
  for (const json& held : report.at("timelines").at(0).at("memory")) {
    for (const json& level : held.at("levels")) {
      most = std::max(most, held.at("rest_bytes").get<std::int64_t>() +
                                level.at(1).get<std::int64_t>() + level.at(2).get<std::int64_t>() +
                                level.at(3).get<std::int64_t>());
    }
  }
  EXPECT_EQ(most, jobs.at("rows").at(jobs.at("best").get<std::size_t>()).at("peak_bytes"));
  // 79.1 GiB, as the driver of an H100 gives it.
  EXPECT_NEAR(report.at("timelines").at(0).at("capacity_bytes").get<double>() / (1 << 30), 79.1,
              0.05);
}

// Of a workload only what is gathered is known, which says nothing of a device's room.
TEST_F(PageCommandTest, TheMemoryOfAWorkloadHasNoDeviceBesideIt) {
  ASSERT_EQ(
      ask("plan --workload gpt2 --cluster a100x8 --policy fsdp --html " + file("w.html")).code, 0);
  const json line = figures(file("w.html")).at("timelines").at(0);
  EXPECT_FALSE(line.at("memory").empty());
  EXPECT_EQ(line.at("capacity_bytes"), nullptr);
}

TEST_F(PageCommandTest, APageOfAWorkloadBeginsWithTheLinesThatItsCommandPrintsFirst) {
  for (const std::string command :
       {"explore --workload mlp --cluster a100x16_ib --policies torch-ddp,exact",
        "explore --workload mlp --cluster a100x8 --policies xla",
        "plan --workload mlp --cluster a100x8"}) {
    expect_same_lines(command);
  }
}

TEST_F(PageCommandTest, APageOfAJobBeginsWithTheLinesThatItsCommandPrintsFirst) {
  expect_same_lines("explore --job " + kSmallJob);
  expect_same_lines("plan --job " + kSmallJob);
}

TEST_F(PageCommandTest, FsdpHasCurvesOverPrefetchingAndNoneOfBucketSizes) {
  ASSERT_EQ(
      ask("explore --workload gpt2 --cluster a100x8 --policies fsdp --html " + file("f.html")).code,
      0);
  const json report = figures(file("f.html"));
  EXPECT_TRUE(report.at("curves").empty());
  const json& prefetch = report.at("prefetch");
  ASSERT_EQ(prefetch.at("curves").size(), 2U);
  const json& reshards = prefetch.at("curves").at(0).at("points");
  const json& keeps = prefetch.at("curves").at(1).at("points");
  // Further ahead more is gathered; without resharding all of it at any rate, and the step is shorter.
  for (std::size_t i = 1; i < reshards.size(); ++i) {
    EXPECT_GE(reshards.at(i).at("memory_bytes"), reshards.at(i - 1).at("memory_bytes"));
    EXPECT_GT(keeps.at(i).at("memory_bytes"), reshards.at(i).at("memory_bytes"));
    EXPECT_LE(keeps.at(i).at("step_us"), reshards.at(i).at("step_us"));
  }
  const auto usual = std::ranges::find_if(
      reshards, [&](const json& point) { return point.at("setting") == prefetch.at("usual"); });
  ASSERT_NE(usual, reshards.end());
  EXPECT_EQ(usual->at("ahead"), 1);
  // What FSDP2 does by itself is a row of the sweep, too.
  const json& rows = report.at("results").at(0).at("rows");
  EXPECT_TRUE(std::ranges::any_of(rows, [&](const json& row) {
    return row.at("policy") == prefetch.at("usual") && row.at("step_us") == usual->at("step_us");
  }));
}

TEST_F(PageCommandTest, ThePageOfASweepHoldsWhatTheCommandPrints) {
  const Ended swept = ask("explore --workload mlp-1000mbit --thresholds 1MiB,25MiB --json --html " +
                          file("sweep.html"));
  ASSERT_EQ(swept.code, 0) << swept.output;
  const json printed = json::parse(swept.output);
  const json report = figures(file("sweep.html"));
  EXPECT_EQ(report.at("results").at(0), printed);
  EXPECT_EQ(report.at("found").at("step_us"), printed.at("best").at("step_us"));
  EXPECT_EQ(report.at("found").at("lower_bound_us"), printed.at("lower_bound_us"));
  EXPECT_EQ(report.at("timelines").at(0).at("step_us"), printed.at("best").at("step_us"));
  EXPECT_EQ(report.at("sensitivity").size(), 8U);
  const json& ddp = report.at("curves").at(0);
  for (const json& row : printed.at("rows")) {
    if (row.at("rule") != "torch-ddp" || row.at("threshold_bytes").is_null()) continue;
    const bool is_there = std::ranges::any_of(ddp.at("points"), [&](const json& point) {
      return point.at("threshold_bytes") == row.at("threshold_bytes") &&
             point.at("step_us") == row.at("step_us");
    });
    EXPECT_TRUE(is_there) << row;
  }
  // Nothing is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(PageCommandTest, APlanItsPredictionAndItsReportTellTheSameStep) {
  const std::string plan =
      "plan --workload mlp --cluster a100x8 --policy torch-ddp:cap=8MiB -o " + file("plan.json");
  ASSERT_EQ(ask(plan + " --trace " + file("predicted.json") + " --html " + file("plan.html")).code,
            0);
  ASSERT_EQ(ask("predict --plan " + file("plan.json") + " --html " + file("predict.html")).code, 0);
  ASSERT_EQ(ask("report " + file("plan.json") + " " + file("predicted.json") + " -o " +
                file("report.html"))
                .code,
            0);
  const json written = json::parse(read_file(file("plan.json")));
  for (const char* const page : {"plan.html", "predict.html", "report.html"}) {
    const json report = figures(file(page));
    EXPECT_EQ(report.at("found").at("step_us"), written.at("predicted").at("step_us")) << page;
    EXPECT_EQ(report.at("found").at("lower_bound_us"), written.at("predicted").at("lower_bound_us"))
        << page;
    const json& line = report.at("timelines").at(0);
    EXPECT_EQ(line.at("buckets").size(), written.at("buckets").size()) << page;
    double sum = 0;
    for (const auto& [what, time] : line.at("breakdown_us").items()) sum += time.get<double>();
    EXPECT_NEAR(sum, line.at("step_us").get<double>(), 0.01) << page;
  }
  const Ended printed = ask("report " + file("plan.json") + " --json");
  EXPECT_EQ(json::parse(printed.output).at("found"), figures(file("report.html")).at("found"));
}

TEST_F(PageCommandTest, WhatCannotBeShownIsRefusedInOneLine) {
  expect_refused("explore --workload mlp --cluster a100x8 --html /no/such/folder/x.html",
                 "cannot be written");
  write_file(file("step.json"), "{}");
  expect_refused("explore --workload " + file("step.json") + " --html " + file("step.json"),
                 "the same file");
  EXPECT_EQ(read_file(file("step.json")), "{}");
  expect_refused("report " + file("step.json") + " -o " + file("x.html"), "a plan or a trace");
  expect_refused("report -o " + file("x.html"), "name either --workload");
  expect_refused("report " + file("step.json"), "name the page to write with -o");
  EXPECT_FALSE(std::filesystem::exists(file("x.html")));
}

}  // namespace
}  // namespace dovetail::testing
