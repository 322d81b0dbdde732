// What stands first in a report, and that it fits the terminal: three lines, rows by step, ten of them; the help by itself, a
// summary without a file, a log without its format, and the way on from a file of the wrong kind.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "cli/text.h"
#include "tests/cli/asked.h"

namespace dovetail::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kSourceTree = DOVETAIL_SOURCE_DIR;
const std::string kResnetTrace =
    kSourceTree + "/tests/recordings/kineto/traces/ddp-resnet50-a100x2-rank0.json.gz";
const std::string kNcclLog = kSourceTree + "/tests/fuzz/corpus/nccl-tests/two_runs.log";
const std::string kPipeline = "--workload mlp --cluster h200x8 --policy pipeline:stages=2,k=4";
const std::string kJob = "qwen3_0.6b:dp_shard=4,gbs=4,seq=512 --cluster h200x4";
const std::string kShippedCluster = kSourceTree + "/models/clusters/a100x8.json";

class AnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("dovetail-answers-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }

 private:
  fs::path folder_;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

// What somebody pastes stays in one piece.
bool is_pasted(const std::string& line) {
  return line.find("dovetail plan --") != std::string::npos ||
         line.find("dovetail export ") != std::string::npos || line.starts_with("paste: ") ||
         line.starts_with("likeliest: ") || line.starts_with("set:   ");
}

void expect_narrow(const std::string& arguments, std::size_t width) {
  const Ended ended = ask(arguments, {{"COLUMNS", std::to_string(width)}});
  EXPECT_EQ(ended.code, 0) << arguments << '\n' << ended.output;
  for (const std::string& line : lines_of(ended.output)) {
    if (is_pasted(line)) continue;
    EXPECT_LE(line.size(), width) << arguments << '\n' << line;
  }
  EXPECT_THAT(ended.output, Not(HasSubstr("\x1b["))) << arguments;
}

// The smallest inputs that have all columns; %: a plan, &: one of a pipeline.
class ReportTest : public AnswersTest, public ::testing::WithParamInterface<std::string> {
 protected:
  std::string made(const std::string& arguments, const std::string& name) {
    EXPECT_EQ(ask("plan " + arguments + " -o " + path(name)).code, 0);
    return path(name);
  }
};

TEST_P(ReportTest, FitsATerminalOf80Columns) {
  std::string command;
  for (const char letter : GetParam()) {
    if (letter == '%') {
      command += made("--workload resnet18 --cluster a100x8", "plan.json");
    } else if (letter == '&') {
      command += made(kPipeline, "pipeline.json");
    } else {
      command += letter;
    }
  }
  expect_narrow(command, 80);
}

INSTANTIATE_TEST_SUITE_P(
    Reports, ReportTest,
    ::testing::Values("explore --workload resnet18 --cluster a100x8",
                      "explore --workload resnet18 --cluster a100x8 --all --notes --plot",
                      "explore --workload resnet18 --workload mlp --cluster a100x8 --cluster "
                      "h200x8 --policies exact",
                      "explore --job " + kJob, "plan --workload resnet18 --cluster a100x8",
                      "predict %", "predict &", "predict % &", "explain %",
                      "diagnose " + kResnetTrace, "diagnose --all --notes " + kResnetTrace,
                      "import nccl-tests " + kNcclLog,
                      "compare " + kShippedCluster + " " + kShippedCluster));

TEST_F(AnswersTest, BeginWithWhatToSetWhatItGivesAndWhatIsLeft) {
  const std::string explored = ask("explore --workload resnet18 --cluster a100x8").output;
  for (const std::string& printed : {explored, ask("explore --job " + kJob).output,
                                     ask("plan --workload resnet18 --cluster a100x8").output,
                                     ask("diagnose " + kResnetTrace).output}) {
    EXPECT_THAT(printed, ContainsRegex("^set:   [^\n]+\n(       [^\n]+\n)*gives: "
                                       "[^\n]+\nleft:  [^\n]+\n"));
  }
  EXPECT_THAT(
      explored,
      ContainsRegex("gives: [0-9.]+ ms a step [^:]+ against [0-9.]+ ms now .PyTorch\\s+DDP's\\s+"
                    "default.: [0-9.]+ % less"));
  EXPECT_THAT(explored, ContainsRegex("left:  at most [0-9.]+ %: no schedule of "));
}

// Expectation: "step ms" of rows as printed rises, and only --all has more than the ten fastest, the best and DDP's default.
TEST_F(AnswersTest, RowsStandByTheirStepAndAllOfThemOnlyWhereAskedFor) {
  const auto steps_of = [](const std::string& output) {
    std::vector<double> steps;
    for (const std::string& line : lines_of(output)) {
      // Of the sweep, whose first bucket follows: torch-ddp:cap=8MiB,first=8MiB
      std::istringstream rest(line);
      std::string name;
      double buckets = 0;
      double step = 0;
      rest >> name >> buckets >> step;
      const std::string cap = name.substr(0, name.find(',')).substr(name.find('=') + 1);
      if (name != "torch-ddp:cap=" + cap + ",first=" + cap) continue;
      steps.push_back(step);
    }
    return steps;
  };
  const std::string command = "explore --workload resnet18 --cluster a100x8 --policies torch-ddp";
  const std::vector<double> all = steps_of(ask(command + " --all").output);
  EXPECT_EQ(all.size(), 17U);
  EXPECT_TRUE(std::ranges::is_sorted(all));
  const std::string printed = ask(command).output;
  const std::vector<double> some = steps_of(printed);
  EXPECT_LE(some.size(), 10U);
  EXPECT_GE(some.size(), 5U);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
  EXPECT_THAT(printed, AllOf(ContainsRegex("[0-9]+ more rows: --all\n"),
                             HasSubstr("PyTorch DDP's default")));
}

TEST_F(AnswersTest, TablesThatAreTooWideLeaveOutColumnsAndSayWhich) {
  const Ended narrow =
      ask("explore --workload resnet18 --cluster a100x8 --policies torch-ddp", {{"COLUMNS", "60"}});
  EXPECT_THAT(narrow.output, AllOf(HasSubstr("(wider than 60 columns shows buckets, exposed ms"),
                                   Not(HasSubstr("\nbuckets"))));
}

TEST_F(AnswersTest, ByItselfTheToolPrintsItsHelp) {
  const Ended ended = ask("");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.output, ask("--help").output);
}

TEST_F(AnswersTest, APlanWithoutAFileIsASummary) {
  const Ended ended = ask("plan --workload resnet18 --cluster a100x8");
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.output, AllOf(StartsWith("set:   nothing yet: -o plan.json writes the plan\n"),
                                  HasSubstr("\nexact, "), HasSubstr("predicted step")));
}

TEST_F(AnswersTest, ImportTellsTheFormatByTheFile) {
  EXPECT_EQ(ask("import " + kNcclLog).output, ask("import nccl-tests " + kNcclLog).output);
  EXPECT_EQ(ask("import " + kResnetTrace).output, ask("import kineto " + kResnetTrace).output);
  write_file(path("bare.txt"), "nothing that is known\n");
  const Ended refused = ask("import " + path("bare.txt"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("unknown format"));
}

// Layers in a loop, each reduced in its turn: what JAX makes of jax.lax.scan.
TEST_F(AnswersTest, AStepThatOwesNoReductionIsPredictedAsItStands) {
  const std::string step = path("scan.json");
  ASSERT_EQ(
      ask("import hlo " + kSourceTree + "/tests/recordings/hlo/gpu12-scan-fsdp.txt -o " + step)
          .code,
      0);
  const std::string where = " --workload " + step + " --cluster h100x8";
  const Ended told = ask("predict" + where + " --json");
  ASSERT_EQ(told.code, 0) << told.output;
  const nlohmann::json row = nlohmann::json::parse(told.output).at("rows").at(0);
  EXPECT_EQ(row.at("buckets"), 0);
  EXPECT_EQ(row.at("collectives").size(), 3 + 3 + 3 + 1);
  EXPECT_GT(row.at("exposed_us"), 0);
  const Ended page = ask("predict" + where + " --html " + path("scan.html") + " --perfetto " +
                         path("scan.json.gz"));
  EXPECT_EQ(page.code, 0) << page.output;
  const Ended half = ask("predict" + where + " --what-if link=0.5x --json");
  EXPECT_GT(nlohmann::json::parse(half.output).at("rows").at(0).at("step_us"), row.at("step_us"));
  EXPECT_THAT(ask("plan" + where + " -o " + path("plan.json")).output,
              HasSubstr("dovetail predict --workload plays the step as it stands"));
  EXPECT_THAT(ask("predict --workload mlp --cluster h100x8").output,
              HasSubstr("PLAN is missing: the gradients of mlp are to be reduced"));
}

// diagnose, which reads the same trace, advises no bucket size either.
TEST_F(AnswersTest, NothingIsToBeSetWhereTheHostIsWaitedFor) {
  const std::string step = path("step.json");
  ASSERT_EQ(ask("import kineto " + kResnetTrace + " -o " + step).code, 0);
  EXPECT_THAT(
      ask("explore --workload " + step).output,
      ContainsRegex("^set:   nothing: the host is what the step waits for\n"
                    "gives: [^\n]+\n( [^\n]+\n)*left:  the device waits [^\n]+ for the host"));
  EXPECT_THAT(ask("diagnose " + kResnetTrace).output, StartsWith("set:   nothing"));
  const Ended both = ask("explore --workload " + step + " --json --html " + path("step.html"));
  ASSERT_EQ(both.code, 0) << both.output;
  const nlohmann::json answer = nlohmann::json::parse(both.output).at("answer");
  EXPECT_TRUE(answer.at("set").empty());
  EXPECT_EQ(answer.at("why_nothing"), "the host is what the step waits for");
  const std::string page = read_file(path("step.html"));
  EXPECT_THAT(page, HasSubstr(R"("paste":[],"next":[])"));
}

// GPT-2 has 475 MiB of parameters and as much of gradients.
TEST_F(AnswersTest, WhatDoesNotFitIsNoAdvice) {
  std::string machine = read_file(kShippedCluster);
  const std::string memory = R"("memory_bytes": 84987084800)";
  machine.replace(machine.find(memory), memory.size(), R"("memory_bytes": 600000000)");
  write_file(path("small.json"), machine);
  const std::string gpt2 = "explore --workload gpt2 --cluster " + path("small.json");
  const std::string ddp = ask(gpt2 + " --policies ddp,ddp:mode=view").output;
  EXPECT_THAT(ddp, StartsWith("set:   nothing: none of these fits into memory\n"));
  EXPECT_THAT(ddp, AllOf(HasSubstr("--policies fsdp"), HasSubstr("best: none fits")));
  const std::string fsdp = ask(gpt2 + " --policies fsdp,fsdp:reshard=no").output;
  EXPECT_THAT(fsdp, HasSubstr(" does not fit "));
  EXPECT_THAT(fsdp, Not(ContainsRegex("best: .*reshard=no")));
  const std::string job =
      " --job qwen3_0.6b:dp_shard=8,gbs=8,seq=512 --cluster " + path("small.json");
  const std::string plan = ask("plan" + job).output;
  EXPECT_THAT(plan, StartsWith("set:   nothing: this job does not fit\n"));
  EXPECT_THAT(
      plan,
      ContainsRegex("\nthis job does not fit: a rank needs [^\n]+ GiB \\([^\n]+ GiB by public"));
  const std::string jobs = ask("explore" + job).output;
  EXPECT_THAT(
      jobs, StartsWith("set:   nothing: no variant fits into memory\ngives: the smallest takes "));
}

TEST_F(AnswersTest, AFolderIsTheTracesInIt) {
  const std::string folder = kSourceTree + "/tests/recordings/kineto/traces/dlrm-v100x8";
  const Ended all = ask("diagnose " + folder + "/rank*.json.gz --json");
  EXPECT_EQ(all.code, 0);
  EXPECT_EQ(ask("diagnose " + folder + " --json").output, all.output);
  EXPECT_THAT(ask("diagnose " + path("")).output, HasSubstr("a folder without traces"));
}

TEST_F(AnswersTest, AFileOfTheWrongKindIsNamedWithTheNextStep) {
  const std::string plan = path("plan.json");
  ASSERT_EQ(ask("plan --workload mlp --cluster a100x8 -o " + plan).code, 0);
  const auto refused = [](const std::string& arguments) {
    const Ended ended = ask(arguments);
    EXPECT_EQ(ended.code, 2) << arguments;
    return ended.output;
  };
  for (const std::string command : {"predict ", "explain ", "run --plan ", "export --to torch "}) {
    EXPECT_THAT(refused(command + kResnetTrace),
                HasSubstr(kResnetTrace + ": no plan, but a profiler's trace: dovetail diagnose " +
                          kResnetTrace))
        << command;
    EXPECT_THAT(refused(command + kShippedCluster),
                HasSubstr(kShippedCluster + ": a cluster, not a plan: name it with --cluster"))
        << command;
  }
  for (const std::string command : {"plan", "explore"}) {
    EXPECT_THAT(refused(command + " --workload " + plan + " --cluster a100x8"),
                HasSubstr(plan + ": a plan, not a workload: dovetail predict " + plan));
    EXPECT_THAT(refused(command + " --workload mlp --cluster " + plan),
                HasSubstr(plan + ": a plan, not a cluster: dovetail predict " + plan));
    EXPECT_THAT(refused(command + " --cluster a100x8 --workload " + kShippedCluster),
                HasSubstr(": a cluster, not a workload: name it with --cluster"));
  }
  for (const std::string command : {"diagnose ", "import kineto ", "import nccl-tests "}) {
    EXPECT_THAT(refused(command + plan),
                HasSubstr(plan + ": a plan, not a file of another program"));
  }
  EXPECT_THAT(refused("compare " + plan + " " + kResnetTrace),
              HasSubstr(plan + ": a plan, not a trace of dovetail: dovetail predict " + plan));
  EXPECT_THAT(refused("compare " + kShippedCluster + " " + plan),
              HasSubstr(kShippedCluster + " is a cluster, and so has to be " + plan));
}

TEST_F(AnswersTest, DecimalSizesArePointedAtOnce) {
  const std::string plan = "plan --workload mlp --cluster a100x8 --policy torch-ddp:cap=";
  EXPECT_THAT(ask(plan + "25MB").output,
              HasSubstr("note: 25MB is taken as powers of 1000; frameworks count MiB"));
  EXPECT_THAT(ask(plan + "25MiB").output, Not(HasSubstr("powers of 1000")));
  EXPECT_THAT(ask(plan + "0").output, HasSubstr("above 0"));
  EXPECT_THAT(ask(plan + "-25MiB").output, HasSubstr("above 0"));
}

TEST_F(AnswersTest, APageGoesIntoAFile) {
  const Ended ended = ask("plan --workload mlp --cluster a100x8 --html -");
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("--html: name the file to write"));
}

TEST_F(AnswersTest, PredictNamesTheBubbleOfAPipeline) {
  const std::string plan = path("pp.json");
  ASSERT_EQ(ask("plan " + kPipeline + " -o " + plan).code, 0);
  EXPECT_THAT(ask("predict " + plan).output,
              ContainsRegex("bubble: [0-9.]+ % \\([0-9.]+ ms\\) of the step on stage [01], "));
}

// Both files are one machine, so that every ratio is 1; against a log that is three times slower, 0.33.
TEST_F(AnswersTest, TwoMachinesAreComparedSizeBySize) {
  const Ended same = ask("compare " + kShippedCluster + " " + kShippedCluster);
  EXPECT_EQ(same.code, 0) << same.output;
  EXPECT_THAT(same.output, AllOf(HasSubstr("all-reduce over 8 ranks"), HasSubstr("  1.00\n"),
                                 Not(HasSubstr("  slower\n"))));
  EXPECT_EQ(ask("compare " + kShippedCluster + " " + kShippedCluster + " --timeline").code, 2);
  EXPECT_THAT(ask("compare " + kShippedCluster + " " + kShippedCluster + " --csv").output,
              StartsWith("collective,ranks,size_bytes,first_busbw_gb_per_s,"));
}

// Whatever a100x8 is, it is as fast as its own file.
TEST_F(AnswersTest, AShippedMachineIsComparedByItsName) {
  const Ended same = ask("compare a100x8 " + kShippedCluster);
  EXPECT_EQ(same.code, 0) << same.output;
  EXPECT_THAT(same.output, AllOf(HasSubstr("all-reduce over 8 ranks"), HasSubstr("  1.00\n")));
  const Ended refused = ask("compare a100x8 absent.json");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("a100x8 is a cluster, and so has to be absent.json"));
}

TEST(TextTable, BreaksTitlesThenSparesColumnsThenCutsTexts) {
  Table table{
      .columns = {{"", "name of it"},
                  {"", "a"},
                  {"", "number", Unit::Own, {}, 1},
                  {"", "words", Unit::Own, {}, 0, Align::Left}},
      .rows = {{{"one", "1", "12345678", "some words that go on for a while until they are cut"}}}};
  ::setenv("COLUMNS", "40", 1);
  std::ostringstream out;
  cli::print_table(out, table);
  ::setenv("COLUMNS", "400", 1);
  EXPECT_EQ(out.str(),
            "name\nof\nit    a  words\n"
            "one   1  some words that go on for a w..\n"
            "(wider than 40 columns shows number)\n");
}

// Their beginnings and ends tell the last four apart, and not the first three.
TEST(TextTable, NamesThatDifferAreCutWhereTheyDo) {
  Table table{.columns = {{"", "policy"}, {"", "step ms"}}, .rows = {}};
  for (const char* const name :
       {"fsdp:mode=copy,wait=end-of-backward,blocks=layer,forward=1,backward=1",
        "fsdp:mode=copy,wait=end-of-backward,blocks=layer,forward=2,backward=1",
        "fsdp:mode=copy,wait=end-of-backward,blocks=layer,forward=1,backward=12,k=2,backward=1",
        "fsdp:mode=copy,wait=first-use,backward=1",
        "exact:wait=first-use,scope=all-that-there-is,sync=1",
        "exact:wait=first-use,scope=all-that-there-is,sync=2", "ddp"}) {
    table.rows.push_back({{name, "1.00"}});
  }
  ::setenv("COLUMNS", "40", 1);
  std::ostringstream out;
  cli::print_table(out, table);
  ::setenv("COLUMNS", "400", 1);
  EXPECT_EQ(out.str(),
            "                                    step\n"
            "policy                                ms\n"
            "fsdp:mod..forward=1,backward=1      1.00\n"
            "fsdp:mod..forward=2,backward=1      1.00\n"
            "fsdp:mod..forward=1,backward=12,..  1.00\n"
            "fsdp:mode=copy,wait=f..,backward=1  1.00\n"
            "exact:wait=first-use,..e-is,sync=1  1.00\n"
            "exact:wait=first-use,..e-is,sync=2  1.00\n"
            "ddp                                 1.00\n");
}

}  // namespace
}  // namespace dovetail::testing
