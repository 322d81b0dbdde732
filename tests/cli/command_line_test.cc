// What a person types and reads: help, version, documents on standard output, several things at once, names,
// and the words in which a line is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "cli/command_text.h"
#include "cli/document.h"
#include "tests/cli/asked.h"
#include "tests/support/perfetto_rules.h"

namespace dovetail {
namespace {

using dovetail::testing::ask;
using dovetail::testing::Ended;
using dovetail::testing::PerfettoRules;
using dovetail::testing::run_command;
using dovetail::testing::tool;
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kPlan = "plan --workload mlp --cluster a100x8 --policy torch-ddp:cap=4MiB";

class CommandLineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = std::filesystem::temp_directory_path() /
                 ("dovetail-line-" + std::string(info->name()) + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (directory_ / name).string();
  }

  std::filesystem::path directory_;
};

ordered_json document(const std::string& arguments) {
  const Ended ended = ask(arguments);
  EXPECT_EQ(ended.code, 0) << arguments << "\n" << ended.output;
  return ended.code == 0 ? ordered_json::parse(ended.output) : ordered_json();
}

std::string refusal(const std::string& arguments) {
  const Ended ended = ask(arguments);
  EXPECT_EQ(ended.code, 2) << arguments << "\n" << ended.output;
  return ended.output;
}

TEST_F(CommandLineTest, TheVersionNamesCommitBuildTypeAndCompiler) {
  const std::string version = ask("--version").output;
  EXPECT_THAT(version,
              ContainsRegex("^dovetail [0-9.]+ \\(commit [a-z0-9-]+, .+, (g\\+\\+|clang) "));
  EXPECT_EQ(ask("-V").output, version);
  EXPECT_EQ(ask("version").output, version);
}

TEST_F(CommandLineTest, EveryHelpHasExamplesAndFitsTheTerminal) {
  for (const char* const command : {"explore", "evaluate", "plan", "predict", "explain", "run",
                                    "calibrate", "compare", "export", "import", "show", "reshard",
                                    "selftest", "diagnose", "import kineto", "import nccl-tests"}) {
    const Ended ended = ask("help " + std::string(command), {{"COLUMNS", "72"}});
    EXPECT_EQ(ended.code, 0) << command;
    EXPECT_THAT(ended.output, AllOf(StartsWith("dovetail " + std::string(command) + " - "),
                                    HasSubstr("Examples:\n  "), Not(HasSubstr(" VALUE  "))));
    const std::string options = ended.output.substr(0, ended.output.find("Examples:"));
    std::size_t begin = 0;
    while (begin < options.size()) {
      const std::size_t end = options.find('\n', begin);
      EXPECT_LE(end - begin, 72U) << options.substr(begin, end - begin);
      begin = end + 1;
    }
    EXPECT_EQ(ask(std::string(command) + " --help", {{"COLUMNS", "72"}}).output, ended.output);
  }
}

TEST_F(CommandLineTest, OptionsOfGpusStandApart) {
  const std::string help = ask("run --help").output;
  const std::size_t gpus = help.find("\nGPUs (--backend cuda)\n");
  ASSERT_NE(gpus, std::string::npos) << help;
  EXPECT_GT(help.find("--graph"), gpus);
  EXPECT_LT(help.find("--rounds"), gpus);
  EXPECT_THAT(ask("reshard --help").output, Not(HasSubstr("torch-ddp")));
}

// That --json prints what -o writes beside the report.
void expect_same_document(const std::string& command, const std::string& file) {
  const ordered_json printed = document(command + " --json");
  EXPECT_EQ(printed["tool"]["name"], "dovetail") << command;
  EXPECT_TRUE(printed.contains("schema")) << command;
  const Ended both = ask(command + " -o " + file);
  EXPECT_EQ(both.output, ask(command).output) << command;
  EXPECT_EQ(ordered_json::parse(read_file(file)), printed) << command;
}

// A plan keeps what was asked of its machine, unless somebody asks anything else, be it for the machine as it is.
TEST_F(CommandLineTest, APlanIsPredictedOnItsOwnWhatIfUnlessOneIsGiven) {
  const std::string plan = path("plan.json");
  const auto step = [&](const std::string& what_if) {
    return document("predict " + plan + what_if + " --json")["rows"][0]["step_us"].get<double>();
  };
  ASSERT_EQ(ask(std::string(kPlan) + " -o " + plan).code, 0);
  const double as_it_is = step("");
  ASSERT_EQ(ask(std::string(kPlan) + " --what-if link=0.25x -o " + plan).code, 0);
  EXPECT_GT(step(""), as_it_is);
  EXPECT_EQ(step(" --what-if link=0.25x"), step(""));
  EXPECT_LT(step(" --what-if link=1x"), step(""));
}

TEST_F(CommandLineTest, JsonIsTheFileThatOutputWrites) {
  for (const std::string command : {"show a100x8", "show mlp", "show policies",
                                    "reshard --shape 8x8 --mesh 4 --from 'S(0)' --to 'S(1)'",
                                    "explore --workload mlp --cluster a100x8 --policies exact"}) {
    expect_same_document(command, path("out.json"));
  }
}

TEST_F(CommandLineTest, JsonOfAPlanIsTheFileThatOutputWrites) {
  const std::string plan = path("plan.json");
  ASSERT_EQ(ask(std::string(kPlan) + " -o " + plan).code, 0);
  EXPECT_EQ(ask(std::string(kPlan) + " --json").output, read_file(plan));
  EXPECT_EQ(ask(std::string(kPlan) + " -o -").output, read_file(plan));
  for (const std::string& command :
       {"predict " + plan, "show " + plan, "show commands --plan " + plan, "explain " + plan}) {
    expect_same_document(command, path("out.json"));
  }
}

TEST_F(CommandLineTest, TablesAreCsvToo) {
  const std::string sweep = "explore --workload mlp --cluster a100x8 --policies one-bucket,exact ";
  const std::string csv = ask(sweep + "--csv").output;
  EXPECT_THAT(csv, StartsWith("policy,rule,threshold_bytes,first_bucket_bytes,mode,wait,buckets,"));
  // The two, DDP as it is and with views, exact with the copies and the waits of DDP and with its waits.
  EXPECT_GE(std::count(csv.begin(), csv.end(), '\n'), 7);
  const std::string file = path("rows.csv");
  EXPECT_EQ(ask(sweep + "-o " + file).code, 0);
  EXPECT_EQ(read_file(file), csv);
}

TEST_F(CommandLineTest, CsvQuotesAndFlattens) {
  const ordered_json document = ordered_json::parse(
      R"({"rows": [{"name": "a \"b\", c", "at": {"x": 1, "y": null}}, {"name": "d", "more": [1]}]})");
  EXPECT_EQ(csv_of(cli::table_of_document(document)),
            "name,at.x,at.y,more\n\"a \"\"b\"\", c\",1,,\nd,,,[1]\n");
}

TEST_F(CommandLineTest, ATableIsMarkdownTooWithItsTitlesForPeople) {
  const Ended markdown = ask("show clusters --markdown");
  EXPECT_EQ(markdown.code, 0);
  EXPECT_THAT(markdown.output,
              AllOf(StartsWith("| cluster | ranks | measured |\n| --- | ---: | ---: |\n"),
                    HasSubstr("\n| a100x8 | 8 | all-reduce")));
  const std::string file = path("rows.md");
  EXPECT_EQ(ask("show clusters -o " + file).code, 0);
  EXPECT_EQ(read_file(file), markdown.output);
}

TEST_F(CommandLineTest, ExportTellsAsJsonWhatItWritesAndWhatIsGivenUp) {
  const std::string plan = path("caps.plan");
  ASSERT_EQ(ask("plan --workload mlp --cluster a100x8 --policy torch-ddp:cap=8MiB -o " + plan).code,
            0);
  const std::string text = ask("export " + plan + " --to deepspeed").output;
  const Ended asked = ask("export " + plan + " --to deepspeed --json");
  ASSERT_EQ(asked.code, 0) << asked.output;
  const ordered_json answer = ordered_json::parse(asked.output);
  EXPECT_EQ(answer["schema"], "dovetail.export/1");
  EXPECT_EQ(answer["text"], text);
  EXPECT_EQ(answer["file"], nullptr);
  // What is given up adds up to what the framework takes more.
  double more_us = 0;
  for (const ordered_json& row : answer["rows"]) more_us += row["more_us"].get<double>();
  EXPECT_FALSE(answer["rows"].empty());
  EXPECT_NEAR(answer["asked_step_us"].get<double>() + more_us,
              answer["as_run_step_us"].get<double>(), 0.01);
  const std::string file = path("deepspeed_config.json");
  const Ended written = ask("export " + plan + " --to deepspeed --json -o " + file);
  EXPECT_EQ(ordered_json::parse(written.output)["file"], file);
  EXPECT_EQ(read_file(file), text);
}

TEST_F(CommandLineTest, TheVersionIsADocumentToo) {
  const ordered_json answer = ordered_json::parse(ask("version --json").output);
  EXPECT_EQ(answer["schema"], "dovetail.version/1");
  EXPECT_EQ(answer["tool"]["name"], "dovetail");
}

TEST_F(CommandLineTest, SeveralPlansWorkloadsAndMachinesMakeOneTable) {
  const std::string a = path("a.json");
  const std::string b = path("b.json");
  ASSERT_EQ(ask(std::string(kPlan) + " -o " + a).code, 0);
  ASSERT_EQ(ask("plan --workload mlp --cluster a100x8 --policy naive -o " + b).code, 0);
  const std::string traces = path("both.json");
  const Ended plans = ask("predict " + a + " --plan " + b + " --perfetto " + traces);
  EXPECT_EQ(plans.code, 0) << plans.output;
  EXPECT_THAT(plans.output,
              AllOf(HasSubstr("2 predictions"), HasSubstr("a.json"), HasSubstr("best")));
  EXPECT_EQ(ordered_json::parse(read_file(traces))["otherData"]["traces"].size(), 2U);
  EXPECT_THAT(PerfettoRules::problems(nlohmann::json::parse(read_file(traces))), IsEmpty());
  EXPECT_EQ(document("predict " + a + " " + b + " --json")["rows"].size(), 2U);
  ASSERT_EQ(ask("predict --plan " + b + " " + a + " --perfetto " + traces + ".gz").code, 0);
  EXPECT_EQ(run_command("gzip -dc " + traces + ".gz").output, read_file(traces));
  const ordered_json pairs = document(
      "explore --workload mlp --workload resnet18 --cluster a100x8 --cluster h200x8 --policies "
      "one-bucket --json");
  ASSERT_EQ(pairs["rows"].size(), 4U);
  EXPECT_EQ(pairs["rows"][1]["workload"], "mlp");
  EXPECT_EQ(pairs["rows"][1]["cluster"], "h200x8");
  EXPECT_EQ(pairs["explorations"][3]["best"]["step_us"], pairs["rows"][3]["step_us"]);
}

TEST_F(CommandLineTest, CompareSaysWhatMovedBetweenAnyTwoTraces) {
  const std::string one = path("one.trace");
  const std::string other = path("other.trace");
  const std::string plan = "plan --workload mlp --cluster a100x8 --json --policy ";
  ASSERT_EQ(ask(plan + "one-bucket --trace " + one).code, 0);
  ASSERT_EQ(ask(plan + "per-tensor --trace " + other).code, 0);
  const Ended text = ask("compare " + one + " " + other);
  EXPECT_EQ(text.code, 0) << text.output;
  EXPECT_THAT(text.output, AllOf(HasSubstr("NOTE    policy: one-bucket first, per-tensor second"),
                                 HasSubstr("what moved, largest first"),
                                 ContainsRegex("all-reduce of 8 tensors .*  1, 0 ")));
  const ordered_json moved = document("compare " + one + " " + other + " --json");
  EXPECT_EQ(moved["schema"], "dovetail.difference/1");
  const ordered_json step = moved["whole"][0];
  EXPECT_NEAR(step["change_us"].get<double>(),
              step["second_us"].get<double>() - step["first_us"].get<double>(), 1e-6);
  EXPECT_THAT(refusal("compare " + one + " " + other + " --html " + path("x.html")),
              HasSubstr("--html shows a predicted trace beside a measured one"));
  const std::string recorded = std::string(DOVETAIL_SOURCE_DIR) +
                               "/tests/recordings/kineto/traces/cuda-sync-multi-stream.json.gz";
  EXPECT_THAT(ask("compare " + recorded + " " + recorded).output,
              HasSubstr("no op and no collective of"));
  EXPECT_THAT(refusal("compare " + one + " " + recorded), HasSubstr("one of a profiler"));
}

TEST_F(CommandLineTest, PredictPrintsTheCriticalPath) {
  const std::string plan = path("plan.json");
  ASSERT_EQ(ask(std::string(kPlan) + " --what-if host=10x -o " + plan).code, 0);
  EXPECT_THAT(ask("predict " + plan + " --critical-path").output,
              AllOf(HasSubstr("critical path of step 1"), HasSubstr("rank 0 backward, ")));
  const ordered_json row = document("predict " + plan + " --json")["rows"][0];
  double sum = 0;
  for (const ordered_json& part : row["critical_path"]) sum += part["time_us"].get<double>();
  EXPECT_NEAR(sum, row["step_us"].get<double>(), 1e-3);
  EXPECT_THAT(refusal("predict " + plan + " --critical-path --json"),
              HasSubstr("--critical-path has no effect"));
}

TEST_F(CommandLineTest, ShowKnowsEveryName) {
  EXPECT_THAT(ask("show a100x8").output, AllOf(HasSubstr("a100x8: 8 ranks, cuda"),
                                               HasSubstr("all-reduce"), HasSubstr("origin")));
  EXPECT_THAT(ask("show mlp:dtype=bf16").output,
              AllOf(HasSubstr("8 gradients"), HasSubstr("all of them")));
  EXPECT_THAT(ask("show zero1").output, HasSubstr("sharded:cap=100MiB,p=2,gather=next-forward"));
  EXPECT_THAT(refusal("show worklods"), HasSubstr("did you mean workloads?"));
  EXPECT_THAT(refusal("show a100x9"), HasSubstr("expected a100x1 to a100x8, or whole nodes"));
  EXPECT_THAT(refusal("show b100x8"), HasSubstr("did you mean a100x8?"));
  const std::string trace = path("trace.json");
  ASSERT_EQ(ask(std::string(kPlan) + " --json --trace " + trace).code, 0);
  EXPECT_THAT(ask("show " + trace).output, HasSubstr("trace of mlp (torch-ddp:cap=4MiB"));
}

TEST_F(CommandLineTest, ARefusalSaysWhatWasTypedAndWhatIsWanted) {
  const std::string explore = "explore --workload mlp --cluster a100x8 ";
  EXPECT_EQ(refusal("predict"),
            "dovetail: predict: PLAN is missing: name one or several plan files\n");
  EXPECT_THAT(refusal("show"), StartsWith("dovetail: show: WHAT is missing: workloads, clusters"));
  EXPECT_THAT(refusal("compare a"), HasSubstr("compare: SECOND is missing: to lay beside it"));
  EXPECT_THAT(refusal("plan --workload a --policy x --policy y -o z"),
              HasSubstr("plan: --policy may be given once"));
  EXPECT_THAT(refusal(explore + "--mode foo"),
              HasSubstr("--mode: expected view or copy, found \"foo\""));
  EXPECT_THAT(refusal(explore + "--thresholds 25MiB:1MiB"), HasSubstr("LOW is above HIGH"));
  EXPECT_THAT(refusal(explore + "--policies ddp:cap=25mb"),
              HasSubstr("expected a size in B, KiB, MiB, GiB, TiB, kB, KB, MB, GB, TB, found"));
  EXPECT_THAT(refusal(explore + "--policies ddp:cap=99999999TiB"), HasSubstr("too large"));
  EXPECT_THAT(refusal("run x.json --graph"), HasSubstr("No such file"));
  EXPECT_THAT(refusal("explore --workload mlp --cluster mi300x_fabric"),
              HasSubstr("with this GPU there are mi300x16, mi300x8"));
  EXPECT_THAT(refusal("explore --workload resnet34 --cluster a100x8"),
              AllOf(HasSubstr("did you mean \"resnet18\"?"), HasSubstr("known: "),
                    HasSubstr("one of your own")));
  EXPECT_THAT(refusal("help plam"), HasSubstr("did you mean plan?"));
  const std::string trace = std::string(DOVETAIL_SOURCE_DIR) +
                            "/tests/recordings/kineto/traces/cuda-sync-multi-stream.json.gz";
  EXPECT_THAT(refusal("explore --workload " + trace),
              AllOf(HasSubstr("dovetail import kineto "), HasSubstr("dovetail diagnose ")));
}

TEST_F(CommandLineTest, AnOptionWithoutEffectIsRefused) {
  const std::string explore = "explore --workload mlp --cluster a100x8 ";
  for (const auto& [line, what] : std::vector<std::pair<std::string, std::string>>{
           {explore + "--policies ddp:cap=25MiB --first-bucket 2MiB",
            "--first-bucket has no effect"},
           {explore + "--policies exact --thresholds 1MiB", "--thresholds has no effect"},
           {explore + "--thresholds 1MiB,2MiB --points 3", "--points has no effect"},
           {explore + "--policies all --thresholds 1MiB", "--thresholds has no effect"},
           {explore + "--policies all --points 3", "--points has no effect"},
           {explore + "--policies all --first-bucket 2MiB", "--first-bucket has no effect"},
           {explore + "--policies all,exact", "--policies all has every policy already"},
           {explore + "--json --plot", "--plot has no effect"},
           {explore + "--mode view --policies torch-ddp:mode=copy", "contradicts mode="},
           {"explore --workload resnet50:world=8 --world 4 --cluster a100x8", "both say how many"},
           {"explore --workload resnet50: --cluster a100x8", "expected options after ':'"},
           {"compare a b --json --timeline", "--timeline has no effect"},
           {"calibrate --workload mlp --ranks 2 -o c.json --max-ctas 4",
            "belongs to --backend cuda"},
           {"calibrate --workload mlp --ranks 2 -o c.json --world 4", "belongs to --backend cuda"},
           {"show program --workload mlp --policy exact", "--policy has no effect"},
           {"predict a b --timeline", "is of one plan"}}) {
    EXPECT_THAT(refusal(line), HasSubstr(what)) << line;
  }
}

TEST_F(CommandLineTest, WordsThatPeopleTypeAreKnown) {
  for (const char* const policy :
       {"ddp", "zero1", "zero2", "zero3", "fsdp", "megatron", "distributed-optimizer", "deepspeed",
        "horovod", "xla", "jax", "paddle"}) {
    EXPECT_EQ(
        ask("plan --workload mlp --cluster a100x8 --json --policy " + std::string(policy)).code, 0)
        << policy;
  }
}

TEST_F(CommandLineTest, AFamilyIsAMachineOfAnySize) {
  const std::string plan = path("plan.json");
  const Ended planned = ask("plan --workload mlp --cluster h100x64 --policy torch-ddp -o " + plan);
  EXPECT_EQ(planned.code, 0) << planned.output;
  EXPECT_THAT(
      planned.output,
      HasSubstr("all-reduce over 64 ranks on 8 nodes: modelled, not measured; from nvlink"));
  const Ended predicted = ask("predict " + plan);
  EXPECT_EQ(predicted.code, 0) << predicted.output;
  const std::string mlp = "plan --workload mlp --policy torch-ddp --json --cluster ";
  EXPECT_EQ(ask(mlp + "h100x64 --world 1024").code, 0);
  EXPECT_EQ(
      refusal(mlp + "h100x12"),
      "dovetail: cluster \"h100x12\": expected h100x1 to h100x8, or whole nodes: a multiple of 8 "
      "ranks\n");
  EXPECT_THAT(ask("show clusters").output, HasSubstr("h100xN"));
  EXPECT_THAT(ask("show h100x64").output, HasSubstr("topology    nodes of 8 ranks; nvlink"));
}

// With a file's own slow-downs by class and a start delay the same plan takes longer.
TEST_F(CommandLineTest, ContentionByClassIsShownAndPriced) {
  const std::string shipped = DOVETAIL_SOURCE_DIR "/models/clusters/mi300x8.json";
  auto machine = nlohmann::json::parse(read_file(shipped));
  const std::string measured = path("measured.json");
  machine["contention"].update(
      {{"gemm_slowdown", 1.3}, {"collective_gemm_slowdown", 2.25}, {"start_delay_us", 150}});
  std::ofstream(measured) << machine;
  EXPECT_THAT(ask("show " + measured).output,
              HasSubstr("; products x1.300, a collective x2.250 beside products; one that begins "
                        "beside a product waits up to 150 us"));
  const auto step_of = [&](const std::string& cluster) {
    const Ended ended =
        ask("plan --workload bert_base --policy torch-ddp --json --cluster " + cluster);
    return nlohmann::json::parse(ended.output).at("predicted").at("step_us").get<double>();
  };
  EXPECT_GT(step_of(measured), step_of("mi300x8"));
}

TEST_F(CommandLineTest, AWorkloadIsPlannedOnOtherRanks) {
  const Ended explored = ask("explore --workload mlp --cluster h100x64 --layout dp_shard=8,dp=2");
  EXPECT_EQ(explored.code, 0) << explored.output;
  EXPECT_THAT(explored.output, HasSubstr("mlp on h100x64: 16 ranks, 8 gradients"));
  EXPECT_THAT(explored.output, HasSubstr("PyTorch FSDP2 (export --to fsdp)"));
  EXPECT_THAT(explored.output, Not(HasSubstr("left out: FSDP2")));
  EXPECT_THAT(explored.output, HasSubstr("--cluster h100x64 --layout dp_shard=8,dp=2 --policy"));
  // A file of one rank has as many as the machine, or as are asked for.
  const std::string one = path("one.json");
  ASSERT_EQ(ask("show program --workload mlp --world 1 --json > " + one).code, 0);
  const std::string of_file = "explore --policies torch-ddp --thresholds 25MiB --workload " + one;
  EXPECT_THAT(ask(of_file + " --cluster a100x8").output, HasSubstr("on a100x8: 8 ranks, 8 grad"));
  EXPECT_THAT(ask(of_file + " --cluster h100x64 --world 4").output, HasSubstr("64: 4 ranks"));
  EXPECT_THAT(ask(of_file + " --cluster h100x64 --layout dp=16").output, HasSubstr("64: 16 ranks"));
  // The plan of one world, with the durations of a measured step on as many ranks.
  const std::string plan = path("plan.json");
  EXPECT_EQ(
      ask("plan --workload mlp-1000mbit --cluster h100x64 --layout dp=32 --policy torch-ddp -o " +
          plan)
          .code,
      0);
  const Ended predicted =
      ask("predict " + plan + " --workload mlp-1000mbit --layout dp=32 --csv --cluster h100x64");
  EXPECT_EQ(predicted.code, 0) << predicted.output;
  EXPECT_THAT(predicted.output, HasSubstr("h100x64,32,"));
}

TEST_F(CommandLineTest, AWrongDataFolderIsToldOf) {
  const Ended ended = ask("show clusters", {{"DOVETAIL_DATA", "/nowhere"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("DOVETAIL_DATA"));
  // What needs no data works without.
  EXPECT_EQ(run_command("DOVETAIL_DATA=/nowhere " + tool() + " help plan").code, 0);
  EXPECT_EQ(run_command("DOVETAIL_DATA=/nowhere " + tool() + " version").code, 0);
}

TEST_F(CommandLineTest, CompletionsAreScriptsThatTheirShellsTake) {
  ASSERT_EQ(run_command(tool() + " completion bash > " + path("c.bash")).code, 0);
  const std::string typed = "bash -c 'source " + path("c.bash") +
                            "; COMP_WORDS=(dovetail %); COMP_CWORD=$; _dovetail; "
                            "printf \"%%s\\n\" \"${COMPREPLY[@]}\"'";
  const auto asked = [&](const std::string& words, const std::string& count) {
    std::string command = typed;
    command.replace(command.find('%'), 1, words);
    command.replace(command.find("=$"), 2, "=" + count);
    command.replace(command.find("%%"), 2, "%");
    return run_command(command).output;
  };
  EXPECT_EQ(asked("explo", "1"), "explore\n");
  EXPECT_EQ(asked("import kin", "2"), "kineto\n");
  EXPECT_THAT(asked("explore --clus", "2"), StartsWith("--cluster\n"));
  EXPECT_EQ(asked("explore --cluster a100x16", "3"), "a100x16\na100x16_ib\n");
  // Paddle's settings are compared, and not named to a recorded step.
  EXPECT_EQ(asked("explore --framework padd", "3"), "paddle\n");
  EXPECT_EQ(asked("diagnose --framework padd", "3"), "\n");
  EXPECT_EQ(asked("diagnose --framework horo", "3"), "horovod\n");
  const Ended man = ask("completion man");
  EXPECT_THAT(man.output, AllOf(HasSubstr(".TH DOVETAIL 1"), HasSubstr("EXIT STATUS"),
                                HasSubstr("dovetail import kineto")));
  for (const char* const shell : {"zsh", "fish"}) {
    const std::string file = path(shell);
    ASSERT_EQ(run_command(tool() + " completion " + shell + " > " + file).code, 0);
    if (run_command("command -v " + std::string(shell)).code != 0) continue;
    EXPECT_EQ(run_command(std::string(shell) + " -n " + file).code, 0) << shell;
  }
}

}  // namespace
}  // namespace dovetail
