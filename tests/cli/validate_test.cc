// dovetail validate, as it prints and as it refuses.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/calibrate/logs/nccl_tests_log.h"
#include "tests/support/errors.h"

namespace dovetail::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

ValidateOptions public_tables() {
  return {.against = "public",
          .folder = std::string(DOVETAIL_SOURCE_DIR) + "/answers/validation/data",
          .document = {}};
}

std::string validated(const ValidateOptions& options) {
  std::ostringstream out;
  validate(options, out);
  return out.str();
}

TEST(ValidateTest, PrintsARowPerSource) {
  const std::string text = validated(public_tables());
  EXPECT_THAT(text, ContainsRegex("nanotron +1545 "));
  EXPECT_THAT(text, ContainsRegex("duoan +5 +5 +- +- +- +5 "));
  EXPECT_THAT(text,
              HasSubstr("megatron-bridge: 3 rows without a job: SFT Performance is not priced\n"));
}

ValidateOptions gpu_steps() {
  ValidateOptions options = public_tables();
  options.against = "gpu";
  options.data_dir = DOVETAIL_DATA_DIR;
  return options;
}

// Predicted phases add up to the step, which is near the measured one.
TEST(ValidateGpuTest, LaysEveryMeasuredStepBesideThePredictedOne) {
  ValidateOptions options = gpu_steps();
  options.document.json = true;
  const auto found = nlohmann::ordered_json::parse(validated(options));
  int judged = 0;
  for (const auto& row : found["rows"]) {
    if (row["step"]["error"].is_null()) continue;
    double sum = 0;
    for (const char* const phase : {"forward", "backward", "optimizer"})
      sum += row[phase]["predicted_us"].get<double>();
    EXPECT_NEAR(sum, row["step"]["predicted_us"].get<double>(), 0.01) << row["name"];
    ++judged;
    EXPECT_LT(std::abs(row["step"]["error"].get<double>()), 0.10) << row["name"];
    const bool is_workload = row["peak"]["error"].is_null();
    EXPECT_EQ(is_workload, row["name"].get<std::string>().starts_with("resnet50"));
    const double memory = is_workload ? 0 : row["peak"]["error"].get<double>();
    EXPECT_LT(std::abs(memory), 0.03) << row["name"];
    const bool is_bound = row["forward"]["host_share"].is_number();
    EXPECT_EQ(is_bound, row["name"].get<std::string>().find("seq 1024 mbs 1 ") != std::string::npos)
        << row["name"];
  }
  EXPECT_EQ(judged, 18);  // with the step that gives the host
  EXPECT_LT(found["scores"][3]["mean"].get<double>(), 0.02);
  EXPECT_LT(found["scores"][4]["worst"].get<double>(), 0.02);
  for (const auto& kind : found["kinds"]) {  // large ones, but for products
    const bool is_large = kind["measured_us"].get<double>() > 5e3 && kind["kind"] != "product";
    if (!is_large) continue;
    EXPECT_LT(std::abs(kind["error"].get<double>()), 0.2) << kind["kind"];
  }
}

TEST(ValidateGpuTest, AKindThatNobodyMeasuredIsMissed) {
  const auto step_error = [](const std::string& without) {
    ValidateOptions options = gpu_steps();
    options.document.json = true;
    options.without = without;
    const auto found = nlohmann::ordered_json::parse(validated(options));
    return found["scores"][3]["mean"].get<double>();
  };
  const double all = step_error("");
  for (const char* const kind :
       {"unaligned", "softmax", "updated", "attention", "host", "batch-norm"})
    EXPECT_GT(step_error(kind), all + 0.005) << kind;
  EXPECT_THAT(dovetail::testing::error_of([&] { step_error("softmaxx"); }),
              HasSubstr("did you mean softmax"));

  ValidateOptions options = gpu_steps();
  options.without = "each";
  EXPECT_THAT(validated(options), HasSubstr("\nunaligned "));
}

TEST(ValidateGpuTest, SaysWhatIsNotJudgedAndScoresThePhases) {
  const std::string text = validated(gpu_steps());
  EXPECT_THAT(text, HasSubstr("gives the host and is not judged"));
  EXPECT_THAT(text, ContainsRegex("step +[0-9.]+ % +[-+][0-9.]+ %\n"));
}

TEST(ValidateGpuTest, RefusesWhatIsNoBookAndWhatIsOfOtherTables) {
  ValidateOptions options = gpu_steps();
  options.gpu = "a100";
  EXPECT_THROW(validated(options), InputError);
  options = gpu_steps();
  options.collectives.files = {"x.log"};
  EXPECT_THROW(validated(options), InputError);
}

// The public tables with so many of their rows.
std::string few_rows(const std::string& name, std::size_t rows) {
  namespace fs = std::filesystem;
  const std::string folder = ::testing::TempDir() + "/validate_" + name;
  fs::create_directories(folder);
  for (const fs::directory_entry& entry : fs::directory_iterator(public_tables().folder)) {
    const std::string table = read_file(entry.path().string());
    std::size_t end = entry.path().extension() == ".csv" ? 0 : table.size();
    for (std::size_t line = 0; line <= rows; ++line) {
      end = std::min(table.find('\n', end), table.size() - 1) + 1;
    }
    write_file(folder + "/" + entry.path().filename().string(), table.substr(0, end));
  }
  return folder;
}

// Tables of no rows, but three of MLPerf's, of one sample a GPU on 8, 16 and 32.
std::string three_sizes() {
  const std::string folder = few_rows("three_sizes", 0);
  std::string table = read_file(folder + "/mlperf_llama31.csv");
  for (const char* const gpus : {"8", "16", "32"}) {
    table += std::string("5.1,us,made up,llama31_8b,B200,") + gpus + "," + gpus +
             ",1,8192,1,1,,500,,config.sh,fp8,1,1,1,1,1,,no,no,no\n";
  }
  write_file(folder + "/mlperf_llama31.csv", table);
  return folder;
}

TEST(ValidateTest, WritesTheSameAsJson) {
  ValidateOptions options = public_tables();
  options.folder = few_rows("few", 20);
  options.document.json = true;
  const std::string text = validated(options);
  EXPECT_THAT(text, HasSubstr("\"schema\": \"dovetail.validate/1\""));
  EXPECT_THAT(text, HasSubstr("\"yardstick\": \"torchtitan\""));
  EXPECT_THAT(text, HasSubstr("\"fit_right_percent\": null"));
}

TEST(ValidateTest, PrintsHowStepsScaleOverGpus) {
  ValidateOptions options = public_tables();
  options.folder = three_sizes();
  options.steps = true;
  options.data_dir = std::string(DOVETAIL_SOURCE_DIR) + "/models";
  const std::string text = validated(options);
  EXPECT_THAT(text, ContainsRegex("mlperf: llama31_8b fp8 on B200 +3 +8 to 32 +[+-][0-9.]+ % +8 "));
  options.document.json = true;
  EXPECT_THAT(validated(options), HasSubstr("\"most_gpus\": 32"));
}

TEST(ValidateTest, CsvHasTheSameColumnsWhetherOrNotStepsArePriced) {
  ValidateOptions options = public_tables();
  options.folder = three_sizes();
  options.data_dir = std::string(DOVETAIL_SOURCE_DIR) + "/models";
  options.document.csv = true;
  const std::string without = validated(options);
  options.steps = true;
  const std::string with = validated(options);
  EXPECT_THAT(without, HasSubstr(",steps.priced,steps.median_percent,"));
  EXPECT_EQ(without.substr(0, without.find('\n')), with.substr(0, with.find('\n')));
  EXPECT_THAT(without, HasSubstr("\nmlperf,3,3,0,,0,0,0,,,,,,,,,,,\n"));
  EXPECT_THAT(with, ContainsRegex("\nmlperf,3,3,0,,0,0,0,,,,3,"));
}

TEST(ValidateTest, RefusesWhatItDoesNotKnowAndTablesThatAreNotThere) {
  ValidateOptions options = public_tables();
  options.against = "private";
  EXPECT_THROW(validated(options), InputError);
  options = public_tables();
  options.folder = "/nowhere";
  EXPECT_THROW(validated(options), InputError);
}

// ---------------------------------------------------------------------------- collectives

// Logs of nccl-tests over 4, 8, 16, 32 and 64 ranks, four a node: 20 us for each doubling of the nodes, and the bytes at 90 GB/s.
std::vector<std::string> logs_of_worlds() {
  std::vector<std::string> files;
  for (int nodes = 1; nodes <= 16; nodes *= 2) {
    const int ranks = 4 * nodes;
    const double factor = 2.0 * (ranks - 1) / ranks;
    std::vector<imports::LogRow> rows;
    for (std::int64_t bytes = 1 << 16; bytes <= 1 << 30; bytes *= 4) {
      const double us = 15 + 20 * std::log2(nodes) + factor * static_cast<double>(bytes) / 9e4;
      rows.push_back({.bytes = bytes, .out_us = us, .in_us = us});
    }
    files.push_back(::testing::TempDir() + "/world" + std::to_string(ranks) + ".log");
    write_file(files.back(),
               imports::log_text(rows, {.ranks = ranks, .per_node = 4, .factor = factor}));
  }
  return files;
}

TEST(ValidateCollectivesTest, PrintsHowWellSmallWorldsTellLargeOnes) {
  ValidateOptions options{.against = "collectives", .folder = "", .document = {}};
  options.collectives = {.files = logs_of_worlds(), .fit_ranks = 16, .node_ranks = {}};
  const std::string text = validated(options);
  EXPECT_THAT(text, HasSubstr("fitted to worlds of up to 16 ranks: nvlink "));
  EXPECT_THAT(text, ContainsRegex("all-reduce over 32 ranks on 8 nodes +8 "));
  EXPECT_THAT(text, ContainsRegex("all-reduce over 64 ranks on 16 nodes +8 "));
  EXPECT_THAT(text, ContainsRegex("64 KiB to 1 MiB +4 "));
  EXPECT_THAT(text, ContainsRegex("all +16 "));
  options.document.json = true;
  EXPECT_THAT(validated(options), HasSubstr("\"schema\": \"dovetail.worlds/1\""));
}

TEST(ValidateCollectivesTest, RefusesWhatItCannotUse) {
  ValidateOptions options{.against = "collectives", .folder = "", .document = {}};
  EXPECT_THROW(validated(options), InputError);
  options.against = "public";
  options.collectives.files = {"a.log"};
  EXPECT_THROW(validated(options), InputError);
}

}  // namespace
}  // namespace dovetail::cli
