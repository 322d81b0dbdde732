// scripts/gpu/gpu_check.sh and its report, as far as they can be held without a GPU.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "answers/inputs.h"
#include "base/file.h"
#include "base/json.h"
#include "models/clusters/cluster.h"
#include "schedule/policies/policies.h"
#include "search/planner.h"
#include "tests/cli/tool.h"

namespace dovetail::cli {
namespace {

using nlohmann::json;
using testing::Ended;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSourceRoot = DOVETAIL_SOURCE_DIR;

Ended shell(const std::string& command) { return testing::run_command(command); }

// Tests run beside each other, also those of another build: each has a place of its own.
std::string place(const std::string& name) {
  return ::testing::TempDir() + "dovetail_" + name + "." + std::to_string(::getpid());
}

Ended dry_run(const std::string& more = "") {
  return shell(kSourceRoot + "/scripts/gpu/gpu_check.sh --dry-run " + more);
}

std::vector<std::string> lines_with(const std::string& text, const std::string& start) {
  std::vector<std::string> found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(start)) found.push_back(line);
  }
  return found;
}

TEST(GpuCheckTest, ADryRunPrintsTheStepsInOrderAndMakesNothing) {
  const std::string out = place("gpu_check_dry");
  const Ended ended = dry_run("--out " + out);
  EXPECT_EQ(ended.code, 0) << ended.output;
  std::size_t last = 0;
  for (const char* step :
       {"facts ", "\nconfigure ", "\nbuild ", "\nconformance ", "\nselftest ",
        "\ncalibrate-eager-1 ", "\nplan-eager-1-0 ", "\nrun-eager-1 ", "\nrun-graph-8 ",
        "\nexact-1-eager ", "\nexact-2-graph ", "\nplan-values-0 ", "\nvalues-0 ", "\nvalues-hsdp ",
        "\nsanitizer ", "\nsanitizer-exact ", "\nreport ", "\ntotal "}) {
    const std::size_t at = ended.output.find(step, last);
    ASSERT_NE(at, std::string::npos) << step << " is missing or too early in " << ended.output;
    last = at;
  }
  EXPECT_FALSE(std::filesystem::exists(out));
}

// Six policies times three numbers of thread blocks, eager and as a graph.
TEST(GpuCheckTest, ThirtySixSchedulesArePlannedAndRun) {
  const Ended ended = dry_run();
  EXPECT_EQ(lines_with(ended.output, "plan-eager-").size(), 18u);
  EXPECT_EQ(lines_with(ended.output, "plan-graph-").size(), 18u);
  EXPECT_EQ(lines_with(ended.output, "calibrate-").size(), 6u);
  const std::vector<std::string> graph = lines_with(ended.output, "run-graph-8 ");
  ASSERT_EQ(graph.size(), 1u);
  EXPECT_THAT(graph[0], HasSubstr(" --graph "));
  EXPECT_THAT(graph[0], HasSubstr("plan-graph-8-5.json"));
  const std::vector<std::string> eager = lines_with(ended.output, "run-eager-1 ");
  ASSERT_EQ(eager.size(), 1u);
  EXPECT_THAT(eager[0], Not(HasSubstr("--graph")));
}

// Values of a plan are checked by ranks that share the GPU: real collectives, no stand-in.
TEST(GpuCheckTest, PlansOfEveryKindHaveTheirValuesChecked) {
  const Ended ended = dry_run();
  const std::vector<std::string> runs = lines_with(ended.output, "values-");
  ASSERT_EQ(runs.size(), 32u);
  EXPECT_EQ(lines_with(ended.output, "plan-values-").size(), runs.size());
  EXPECT_EQ(std::ranges::count_if(runs,
                                  [](const std::string& line) {
                                    return line.find("sharing_ranks \"$@\" bash 4 ") !=
                                           std::string::npos;
                                  }),
            2);
  for (const std::string& run : runs) EXPECT_THAT(run, Not(HasSubstr("--stand-in"))) << run;
}

// A rank on each GPU, all kinds and groups, for NCCL's own choice of thread blocks and two limits.
TEST(GpuCheckTest, SeveralGpusMeasureTheirCollectives) {
  const std::vector<std::string> steps = lines_with(dry_run("--gpus 8").output, "collectives-");
  ASSERT_EQ(steps.size(), 3u);
  for (const std::string& step : steps) EXPECT_THAT(step, HasSubstr("--backend cuda --ranks 8 "));
  EXPECT_THAT(steps[0], Not(HasSubstr("--max-ctas")));
  EXPECT_THAT(steps[2], HasSubstr("--max-ctas 16"));
  const std::vector<std::string> alone = lines_with(dry_run("--gpus 1").output, "collectives");
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_THAT(alone[0], HasSubstr("left out: one GPU has no peer"));
}

TEST(GpuCheckTest, AMachineWithoutSocketsIsTold) {
  const auto objection = [](const std::string& states) {
    return shell("cd " + kSourceRoot + "/scripts/gpu && python3 -c 'import gpu_report; " +
                 "print(gpu_report.network_objection(" + states + "))'")
        .output;
  };
  EXPECT_EQ(objection("{\"eth0\": \"down\", \"lo\": \"unknown\"}"), "\n");
  EXPECT_THAT(objection("{\"lo\": \"down\"}"), HasSubstr("all network interfaces are down (lo)"));
  EXPECT_THAT(objection("{}"), HasSubstr("no network interface"));
}

// 545 s of steps and 15 of the report; 145 less where nothing is built.
TEST(GpuCheckTest, EveryStepHasADeadlineAndAllOfThemTogether) {
  const std::string output = dry_run().output;
  EXPECT_THAT(lines_with(output, "total "), ::testing::ElementsAre(HasSubstr(" 560 s ")));
  std::istringstream in(output);
  int steps = 0;
  for (std::string line; std::getline(in, line) && !line.starts_with("total "); ++steps) {
    std::istringstream words(line);
    std::string name;
    std::string unit;
    int seconds = 0;
    words >> name >> seconds >> unit;
    EXPECT_GT(seconds, 0) << line;
    EXPECT_LE(seconds, 240) << line;
    EXPECT_EQ(unit, "s") << line;
  }
  EXPECT_GT(steps, 150);
}

// Programs of another machine: none is built, and none may be missing.
TEST(GpuCheckTest, PrebuiltProgramsNeedNoCompiler) {
  const std::string built = place("gpu_check_built");
  std::filesystem::create_directories(built);
  for (const char* file : {"dovetail", "libdovetail_cuda.so"}) std::ofstream(built + "/" + file);
  const Ended lacking = dry_run("--prebuilt " + built);
  EXPECT_EQ(lacking.code, 2);
  EXPECT_THAT(lacking.output, HasSubstr("there is no dovetail_conformance in " + built));
  std::ofstream(built + "/dovetail_conformance");
  const Ended ended = dry_run("--prebuilt " + built);
  std::filesystem::remove_all(built);
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(lines_with(ended.output, "configure").empty());
  EXPECT_TRUE(lines_with(ended.output, "build").empty());
  EXPECT_THAT(lines_with(ended.output, "conformance "),
              ::testing::ElementsAre(HasSubstr(built + "/dovetail_conformance")));
  EXPECT_THAT(lines_with(ended.output, "total "), ::testing::ElementsAre(HasSubstr(" 415 s ")));
}

TEST(GpuCheckTest, OnlyTheStepsThatAreAskedForAreTaken) {
  const std::string output = dry_run("--only 'values-(3|tp)$'").output;
  std::vector<std::string> names;
  std::istringstream in(output);
  for (std::string line; std::getline(in, line);) names.push_back(line.substr(0, line.find(' ')));
  EXPECT_THAT(names, ::testing::ElementsAre("plan-values-3", "values-3", "plan-values-tp",
                                            "values-tp", "report", "total"));
}

TEST(GpuCheckTest, GivenHeadersAreLookedAt) {
  const std::vector<std::string> lines =
      lines_with(dry_run("--deps /some/prefix").output, "configure");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("-DCMAKE_PREFIX_PATH=/some/prefix/usr"));
  EXPECT_THAT(lines[0], HasSubstr("-DDOVETAIL_CUDA=ON"));
  EXPECT_THAT(lines[0], HasSubstr("-DDOVETAIL_GLOO=OFF"));
}

// A stand-in reduces nothing, so values are checked by runs of their own, with real collectives.
TEST(GpuCheckTest, ValuesAreCheckedWithoutAStandIn) {
  const Ended ended = dry_run();
  for (const char* name :
       {"exact-1-eager ", "exact-1-graph ", "exact-2-eager ", "exact-2-graph "}) {
    const std::vector<std::string> lines = lines_with(ended.output, name);
    ASSERT_EQ(lines.size(), 1u) << name;
    EXPECT_THAT(lines[0], Not(HasSubstr("--stand-in")));
  }
}

// Some sandboxes do not let compute-sanitizer watch their GPU, and give back few files.
TEST(GpuCheckTest, ARefusedSanitizerIsASkipAndEverythingIsInOneArchive) {
  const std::string out = place("gpu_check_steps");
  const std::string steps =
      R"bash( deadline=$((SECONDS + 60)); failed=0; dry_run=; only=; mkdir "$out"
      eval "$(sed -n -e "/^is_wanted() {/p" -e "/^step() {/,/^}/p" -e "/^pack() {/,/^}/p" "$root/scripts/gpu/gpu_check.sh")"
      refuses=(sh -c "echo Device not supported; exit 1")
      step sanitizer 5 "${refuses[@]}"; step selftest 5 "${refuses[@]}"; echo "$failed failed"
      pack; tar tzf "$out.tar.gz"; rm -r "$out" "$out.tar.gz")bash";
  const Ended ended = shell("bash -c 'root=" + kSourceRoot + "; out=" + out + ";" + steps + "'");
  EXPECT_THAT(ended.output,
              HasSubstr("gpu_check: sanitizer: skipped, compute-sanitizer may not watch"));
  EXPECT_THAT(ended.output, HasSubstr("gpu_check: selftest: FAILED (exit 1)"));
  EXPECT_THAT(ended.output, HasSubstr("1 failed"));
  EXPECT_THAT(ended.output, HasSubstr("everything is in " + out + ".tar.gz"));
  EXPECT_THAT(ended.output, HasSubstr("/sanitizer.log"));
}

TEST(GpuCheckTest, RelativePathsCountFromTheCallersFolder) {
  const Ended ended =
      shell("cd /usr && " + kSourceRoot + "/scripts/gpu/gpu_check.sh --dry-run --out found");
  ASSERT_EQ(lines_with(ended.output, "facts ").size(), 1u);
  EXPECT_THAT(lines_with(ended.output, "facts ")[0], HasSubstr(" /usr/found/facts.json"));
}

TEST(GpuCheckTest, AWrongOptionIsWrongUse) {
  EXPECT_EQ(shell(kSourceRoot + "/scripts/gpu/gpu_check.sh --fast").code, 2);
  EXPECT_EQ(shell(kSourceRoot + "/scripts/gpu/gpu_check.sh --out").code, 2);
}

TEST(GpuCheckTest, WithoutADriverItSaysSoAndMeasuresNothing) {
  if (std::filesystem::exists("/proc/driver/nvidia/version")) GTEST_SKIP() << "there is a driver";
  const Ended ended =
      shell(kSourceRoot + "/scripts/gpu/gpu_check.sh --out " + place("gpu_check_none"));
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.output, ::testing::AnyOf(HasSubstr("no NVIDIA driver is loaded here"),
                                             HasSubstr("nvcc is missing here")));
}

TEST(ClusterScriptsTest, EachCanBeRead) {
  int scripts = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(kSourceRoot + "/scripts/data/clusters")) {
    const std::string path = entry.path().string();
    SCOPED_TRACE(path);
    if (!path.ends_with(".sh")) continue;
    EXPECT_EQ(shell("bash -n " + path).code, 0);
    ++scripts;
  }
  EXPECT_EQ(scripts, 4);
}

TEST(ClusterScriptsTest, TheJobOfKubernetesIsYaml) {
  if (shell("python3 -c 'import yaml'").code != 0) GTEST_SKIP() << "python3-yaml is missing";
  const Ended ended =
      shell("python3 -c 'import sys, yaml; print(yaml.safe_load(open(sys.argv[1]))[\"kind\"])' " +
            kSourceRoot + "/scripts/data/clusters/kubernetes.yaml");
  EXPECT_EQ(ended.output, "MPIJob\n");
}

class GpuReportTest : public ::testing::Test {
 protected:
  GpuReportTest() { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const json& value) const {
    std::ofstream(folder_ + "/" + name) << value;
  }
  [[nodiscard]] Ended run(const std::string& arguments) const {
    return shell("python3 " + kSourceRoot + "/scripts/gpu/gpu_report.py " + arguments);
  }
  static json row(const std::string& plan, double predicted, double measured) {
    return {{"plan", "x/" + plan}, {"policy", "one-bucket"},         {"buckets", 1},
            {"p10_us", measured},  {"predicted_step_us", predicted}, {"measured_step_us", measured},
            {"p90_us", measured},  {"checked_elements", 7},          {"wrong_elements", 0}};
  }
  static json report_of(const json& rows) {
    return {{"machine", "m"}, {"backend", "cuda"}, {"date", "d"}, {"rows", rows}};
  }
  const std::string folder_ = place("gpu_report");
};

// Eager: 110 and 90 against 100, so 10 % each. Graph: 130 against 100, so 30 %. All: mean 50 / 3 %.
TEST_F(GpuReportTest, MeanAndWorstErrorByWayOfIssuing) {
  write("run-eager-4.json", report_of(json::array({row("a.json", 110, 100)})));
  write("run-eager-16.json", report_of(json::array({row("b.json", 90, 100)})));
  write("run-graph-32.json", report_of(json::array({row("c.json", 130, 100)})));
  write("run-graph-4.json", "half a file");  // a run that was late
  const Ended ended = run("report " + folder_);
  ASSERT_EQ(ended.code, 0) << ended.output;
  const json errors = json::parse(read_file(folder_ + "/errors.json"));
  EXPECT_NEAR(errors.at("by_issue").at("eager").at("mean").get<double>(), 0.1, 1e-9);
  EXPECT_NEAR(errors.at("by_issue").at("graph").at("worst").get<double>(), 0.3, 1e-9);
  EXPECT_NEAR(errors.at("all").at("mean").get<double>(), 0.5 / 3, 1e-9);
  EXPECT_EQ(errors.at("rows").at(0).at("max_ctas"), 16);
  EXPECT_EQ(errors.at("rows").at(2).at("calibration"), "calibration-graph-32.json");
}

// Predicted 100 and 140, measured 110 and 130: the difference is said to be 40 and is 20, 20 of 120 us.
// A model without overlap says 140 twice: 30/110 and 10/130 off.
TEST_F(GpuReportTest, DifferencesBetweenSchedulesAreJudgedToo) {
  json apart = row("b.json", 140, 130);
  apart["policy"] = "no-overlap";
  write("run-eager-2.json", report_of(json::array({row("a.json", 100, 110), apart})));
  const Ended ended = run("report " + folder_);
  ASSERT_EQ(ended.code, 0) << ended.output;
  const json found = json::parse(read_file(folder_ + "/errors.json")).at("differences");
  EXPECT_EQ(found.at("pairs"), 1);
  EXPECT_NEAR(found.at("mean").get<double>(), 20.0 / 120, 1e-9);
  EXPECT_NEAR(found.at("mean_error_of_a_model_without_overlap").get<double>(),
              (30.0 / 110 + 10.0 / 130) / 2, 1e-9);
  EXPECT_THAT(ended.output, HasSubstr("a model without overlap"));
}

// One step of 40 us. Op 0..10, then the compute stream waits to 30 for a collective of 12..29, then an
// op 30..40: of the path 0..10, 12..29, 30..40 are covered, so 3 of 40 us are overhead. In the other
// step the collective is over before the op that follows at 15..30, and nobody waits: of the path
// 0..10, 15..30, 31..40 are covered, so 6 of 40 us. The median of both is 4.5 of 40.
TEST_F(GpuReportTest, OverheadIsWhatTheCriticalPathLeavesOpen) {
  json commands = json::array();
  for (const char* kind : {"compute", "collective", "wait", "compute", "compute"}) {
    commands.push_back({{"id", commands.size()}, {"kind", kind}});
  }
  const json spans = {{0, 0, 0, 0, 0, 10000},     {1, 0, 1, 0, 12000, 29000, 12000},
                      {2, 0, 0, 0, 10000, 30000}, {3, 0, 0, 0, 30000, 40000},
                      {0, 0, 0, 1, 50000, 60000}, {1, 0, 1, 1, 62000, 79000},
                      {3, 0, 0, 1, 65000, 80000}, {4, 0, 0, 1, 81000, 90000}};
  write("trace-eager-4-0.json", {{"commands", commands}, {"spans", spans}});
  write("run-eager-4.json", report_of(json::array({row("plan-eager-4-0.json", 40, 40)})));
  const Ended ended = run("report " + folder_);
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("overhead mean 11.25%, worst 11.25%"));
  const json errors = json::parse(read_file(folder_ + "/errors.json"));
  EXPECT_NEAR(errors.at("rows").at(0).at("overhead").get<double>(), 4.5 / 40, 1e-9);
}

TEST_F(GpuReportTest, TellsTheSelfTestTheValuesAndTheSanitizer) {
  const json product = {{"part", "cuda"},
                        {"name", "gpu 0 product f32 in a plan"},
                        {"verdict", "pass"},
                        {"detail", "1.010 times"}};
  // A library has written to standard output too.
  std::ofstream(folder_ + "/selftest.json")
      << "NCCL version 2.28.9\n"
      << json({{"passed", 1}, {"failed", 0}, {"skipped", 2}, {"known", 1}, {"rows", {product}}})
      << "\nlate\n";
  json wrong = row("plan-exact-2-0.json", 1, 1);
  wrong["wrong_elements"] = 3;
  write("exact-1-eager.json", report_of(json::array({row("plan-exact-1-0.json", 1, 1)})));
  write("exact-2-eager.json", report_of(json::array({wrong})));
  std::ofstream(folder_ + "/steps.jsonl")
      << R"({"step": "build", "seconds": 50, "result": "ok"})" << '\n'
      << R"({"step": "sanitizer", "seconds": 9, "result": "exit 9"})" << '\n';
  std::ofstream(folder_ + "/sanitizer.log") << "========= ERROR SUMMARY: 2 errors\n";
  write("run-eager-4.json", report_of(json::array({row("a.json", 110, 100)})));
  const Ended ended = run("report " + folder_);
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("self-test: 1 passed, 0 failed, 2 skipped, 1 known"));
  EXPECT_THAT(ended.output, HasSubstr("1.010 times"));
  EXPECT_THAT(ended.output, HasSubstr("14 elements checked in 2 runs, 3 wrong"));
  EXPECT_THAT(ended.output, HasSubstr("compute-sanitizer: exit 9; ERROR SUMMARY: 2 errors"));
  const json errors = json::parse(read_file(folder_ + "/errors.json"));
  EXPECT_EQ(errors.at("elements").at("wrong"), 3);
  EXPECT_EQ(errors.at("selftest").at("products").size(), 1u);
}

// Where only values were asked for nothing is wrong with a run that has no schedules.
TEST_F(GpuReportTest, ValuesOfPlansAreToldByPlan) {
  std::ofstream(folder_ + "/steps.jsonl") << "";
  write("values-hsdp.json", report_of(json::array({row("plan-values-hsdp.json", 1, 1)})));
  const Ended ended = run("report " + folder_);
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("7 elements checked in 1 runs, 0 wrong"));
  const json found = json::parse(read_file(folder_ + "/measured.json")).at("elements");
  EXPECT_EQ(found.at("plans").at(0),
            (json{{"run", "values-hsdp"}, {"policy", "one-bucket"}, {"checked", 7}, {"wrong", 0}}));
}

// What there is to commit is one file.
TEST_F(GpuReportTest, CollectivesOfSeveralGpusAreInTheOneFile) {
  std::ofstream(folder_ + "/steps.jsonl") << "";
  write("collectives-4.json", {{"quality", {{"valid", false}, {"why", {"the device is emulated"}}}},
                               {"collectives",
                                {{{"collective", "send-recv"},
                                  {"ranks", 2},
                                  {"points", {{{"bytes", 67108864}, {"isolated_us", 1000.0}}}}}}}});
  const Ended ended =
      shell("python3 " + kSourceRoot + "/scripts/gpu/gpu_report.py report " + folder_);
  EXPECT_THAT(ended.output, HasSubstr("send-recv over 2, 4 CTAs: 64 MiB in 1000.0 us, 67.1 GB/s"));
  const json measured = json::parse(read_file(folder_ + "/measured.json"));
  EXPECT_EQ(measured.at("schema"), "dovetail.gpu_measured/1");
  EXPECT_EQ(measured.at("collectives").at(0).at("max_ctas"), 4);
  EXPECT_EQ(measured.at("collectives").at(0).at("valid"), false);
}

TEST_F(GpuReportTest, WithoutRunsThereIsNoFileAndAnExitCode) {
  const Ended ended = run("report " + folder_);
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("no schedule was both predicted and measured"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/errors.json"));
}

// On a real plan, so that the script and the file format cannot drift apart.
TEST_F(GpuReportTest, ThreadBlocksAreSetInEveryBucketOfAPlan) {
  const std::string plan = folder_ + "/plan.json";
  const Ended planned =
      shell(dovetail::testing::tool() +
            " plan --workload mlp --world 8 --cluster h200x8 --policy one-bucket -o " + plan);
  ASSERT_EQ(planned.code, 0) << planned.output;
  ASSERT_EQ(run("set-ctas " + plan + " 16").code, 0);
  const Ended shown = shell(dovetail::testing::tool() + " show schedule --plan " + plan);
  EXPECT_EQ(shown.code, 0);
  EXPECT_THAT(shown.output, HasSubstr("at most 16 blocks"));
}

TEST_F(GpuReportTest, FactsAreWrittenAlsoWhereThereIsNoGpu) {
  ASSERT_EQ(run("facts " + folder_ + "/facts.json").code, 0);
  const json facts = json::parse(read_file(folder_ + "/facts.json"));
  EXPECT_EQ(facts.at("schema"), "dovetail.gpu_facts/1");
  EXPECT_GT(facts.at("cores").get<int>(), 0);
}

// The predicted step of one row of errors.json, from the calibration beside it.
double predicted_us(const std::string& folder, const json& row) {
  const std::string cluster = folder + "/" + row.at("calibration").get<std::string>();
  const json calibration = json::parse(read_file(cluster));
  const std::string program = folder + "/program.json";  // that ran
  predict::Inputs inputs = predict::load_inputs(
      {.workload = std::filesystem::exists(program)
                       ? program
                       : calibration.at("notes").at("workload").get<std::string>(),
       .cluster = cluster,
       .data_dir = kSourceRoot + "/models",
       .world = calibration.at("ranks").get<std::int64_t>()});
  search::Planner planner(std::move(inputs.program), std::move(inputs.machine.costs));
  const auto spec = schedule::parse_policy(row.at("policy").get<std::string>());
  return to_us(Duration(planner.evaluate(spec).summary.step_ns));
}

struct ReportErrors {
  double mean = 0;
  double worst = 0;
};

ReportErrors report_errors(const std::string& folder) {
  const json kept = json::parse(read_file(folder + "/errors.json"));
  ReportErrors errors;
  for (const json& row : kept.at("rows")) {
    const double error =
        std::abs(predicted_us(folder, row) / row.at("measured_step_us").get<double>() - 1);
    errors.mean += error / static_cast<double>(kept.at("rows").size());
    errors.worst = std::max(errors.worst, error);
  }
  return errors;
}

// The calibrations and errors of a committed measurement, as the files they were.
void unpack(const std::string& measured, const std::string& folder) {
  const json kept = json::parse(read_file(measured));
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/errors.json") << json{{"rows", kept.at("rows")}};
  for (const auto& [name, calibration] : kept.at("calibrations").items()) {
    std::ofstream(folder + "/" + name) << calibration;
  }
  if (kept.contains("program")) std::ofstream(folder + "/program.json") << kept.at("program");
}

// A folder as gpu_check.sh leaves it, of a machine that takes as long as predicted and one that
// takes half of it: errors of 0 and 100 %.
TEST_F(GpuReportTest, AKeptFolderIsPredictedAnew) {
  models::Cluster machine = models::load_cluster("h200x8", kSourceRoot + "/models/clusters");
  machine.notes["workload"] = "mlp";
  models::save_cluster(machine, folder_ + "/calibration-eager-4.json");
  json row = {{"policy", "one-bucket"}, {"calibration", "calibration-eager-4.json"}};
  const double us = predicted_us(folder_, row);
  EXPECT_GT(us, 0);
  row["measured_step_us"] = us;
  json slow = row;
  slow["measured_step_us"] = us / 2;
  write("errors.json", {{"rows", {row, slow}}});
  EXPECT_NEAR(report_errors(folder_).mean, 0.5, 1e-6);
  EXPECT_NEAR(report_errors(folder_).worst, 1, 1e-6);
  // And from the one file that is committed.
  write("measured.json", {{"rows", {row, slow}},
                          {"calibrations",
                           {{"calibration-eager-4.json",
                             json::parse(read_file(folder_ + "/calibration-eager-4.json"))}}}});
  unpack(folder_ + "/measured.json", folder_ + "/again");
  EXPECT_NEAR(report_errors(folder_ + "/again").mean, 0.5, 1e-6);
}

// The cost model against what a GPU measured: traces/measured/gpu/*.json, each the measured.json of a run of gpu_check.sh.
// Plans are predicted anew from the calibrations of that run, so a change of the model shows here without the hardware.
// The limits are a bit above what the first one gives: 0.83 % in the mean of 18 schedules, 1.58 % at worst.
TEST(GpuPredictionTest, KeptMeasurementsAreWithinOnePointTwoPercentInTheMeanAndTwoAtWorst) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(kSourceRoot + "/traces/measured/gpu")) {
    const std::string file = entry.path();
    const std::string folder = place("gpu_kept");
    unpack(file, folder);
    const ReportErrors errors = report_errors(folder);
    std::filesystem::remove_all(folder);
    std::cout << entry.path().filename().string() << ": mean " << errors.mean * 100 << " %, worst "
              << errors.worst * 100 << " %\n";
    EXPECT_LE(errors.mean, 0.012) << file;
    EXPECT_LE(errors.worst, 0.02) << file;
    ++files;
  }
  EXPECT_GE(files, 1);
}

}  // namespace
}  // namespace dovetail::cli
