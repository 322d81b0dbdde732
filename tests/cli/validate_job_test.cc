// dovetail validate job, on logs that are made up.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate_job.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <sstream>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "base/file.h"
#include "base/json.h"
#include "frameworks/jobs/job_source.h"
#include "tests/support/errors.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string data(const std::string& file) {
  return std::string(DOVETAIL_SOURCE_DIR) + "/tests/frameworks/data/" + file;
}
const std::string kLog = "made_up_megatron.log";

ValidateJobOptions megatron_run() {
  return {.job = data(kLog), .cluster = "h100x8", .data_dir = DOVETAIL_DATA_DIR};
}

std::string text_of(const ValidateJobOptions& options) {
  std::ostringstream out;
  validate_job(options, {}, out);
  return out.str();
}

ordered_json json_of(const ValidateJobOptions& options) {
  std::ostringstream out;
  validate_job(options, {.json = true}, out);
  return ordered_json::parse(out.str());
}

ordered_json row_of(const ordered_json& document, const std::string& quantity) {
  for (const ordered_json& row : document["rows"]) {
    if (row["quantity"] == quantity) return row;
  }
  return nullptr;
}

std::string refusal(const ValidateJobOptions& options) {
  return dovetail::testing::error_of([&] { text_of(options); });
}

std::string written(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  write_file(path, text);
  return path;
}

// Eight lines: 7990, 8050, 8070, 8100, 8110, 8130, 8160, 8210 ms. Of 64 samples of 8,192 tokens on 8 GPUs.
TEST(ValidateJobTest, LaysTheMedianOfAMegatronLogBesideThePrediction) {
  const ordered_json found = json_of(megatron_run());
  const ordered_json step = row_of(found, "step_us");
  EXPECT_EQ(step["measured"], 8'110'000.0);
  EXPECT_EQ(step["measured_p10"], 8'050'000.0);
  EXPECT_EQ(step["measured_p90"], 8'160'000.0);
  const auto tokens = row_of(found, "tokens_per_s_per_gpu");
  EXPECT_DOUBLE_EQ(tokens["measured"].get<double>(), 65'536 / 8.11);
  EXPECT_NEAR(tokens["ratio"].get<double>() * step["ratio"].get<double>(), 1, 1e-12);
  EXPECT_EQ(found["steps"]["counted"], 8);
  EXPECT_EQ(found["steps"]["unread"], 1);
  EXPECT_EQ(found["assumed"][0]["option"], "--mtp-num-layers");
}

// The prediction is that of the job by itself; memory is that of the stage that rank 0 is on.
TEST(ValidateJobTest, PredictsWhatThePlanOfTheJobWould) {
  const ordered_json found = json_of(megatron_run());
  const auto job = frameworks::load_job(data(kLog));
  const auto alone = predict::predict_job(job, predict::load_cluster("h100x8", DOVETAIL_DATA_DIR));
  EXPECT_EQ(row_of(found, "step_us")["predicted"], to_us(alone.step));
  const ordered_json held = row_of(found, "allocated_bytes");
  EXPECT_EQ(held["measured"], static_cast<double>(gib(48).count()));
  EXPECT_EQ(held["predicted"], static_cast<double>(alone.memory[0].allocated().count()));
  EXPECT_EQ(row_of(found, "reserved_bytes")["predicted"],
            static_cast<double>(alone.memory[0].reserved().count()));
  EXPECT_EQ(found["memory"], ordered_json({{"rank", 0}, {"stage", 0}, {"ranks", 3}}));
}

TEST(ValidateJobTest, SaysWhatIsMeasuredWhatIsPredictedAndWhatWasAssumed) {
  const std::string text = text_of(megatron_run());
  EXPECT_THAT(text,
              HasSubstr("assumed: --mtp-num-layers 1: multi-token prediction is not modelled"));
  EXPECT_THAT(text, ContainsRegex("measured +p10 to p90 +predicted +p5 to p95"));
  EXPECT_THAT(text, ContainsRegex("step ms +8110.0 +8050.0 to 8160.0 "));
  EXPECT_THAT(text, ContainsRegex("TFLOP/s/GPU +410.0 "));
  EXPECT_THAT(text, ContainsRegex("GiB allocated, rank 0 +48.0 +- "));
  EXPECT_THAT(text, HasSubstr("the median of 8 lines of steps, 3 to 10, behind the first 2"));
}

TEST(ValidateJobTest, ReadsTorchtitansLogBesideItsFile) {
  ValidateJobOptions options = megatron_run();
  options.job = data("torchtitan_llama3_8b.toml") + ":world=8";
  EXPECT_THAT(refusal(options), HasSubstr("name the log of its run with --log"));
  options.log = data("made_up_titan.log");
  const ordered_json found = json_of(options);
  EXPECT_EQ(found["logged_by"], "torchtitan");
  EXPECT_NEAR(row_of(found, "tokens_per_s_per_gpu")["measured"].get<double>(), 7280, 0.1);
  EXPECT_TRUE(row_of(found, "allocated_bytes").is_null());
  EXPECT_FALSE(row_of(found, "reserved_bytes").is_null());
}

TEST(ValidateJobTest, RefusesLogsWithoutStepsOfTheJob) {
  ValidateJobOptions options = megatron_run();
  const std::string log = read_file(data(kLog));
  const std::string head = log.substr(0, log.find("7: "));
  options.job = written("head.log", head);
  EXPECT_THAT(refusal(options), HasSubstr("head.log: no steps in it: expected lines"));
  options.job = written("short.log", log.substr(0, log.find("0: Number of")));
  EXPECT_THAT(refusal(options),
              HasSubstr("short.log: 2 lines of steps, all of them warm-up: expected more than 2"));
  options.job = data(kLog) + ":gbs=128";
  EXPECT_THAT(refusal(options),
              HasSubstr("its steps have a global batch of 64 samples, the job one of 128"));
  options.job = written("ranks.log", log + "[Rank 8] memory (MB) | max allocated: 3.0\n");
  EXPECT_THAT(refusal(options), HasSubstr("memory of rank 8, and the job has 8 ranks"));
  options = megatron_run();
  options.cluster = "";
  EXPECT_THAT(refusal(options), HasSubstr("--cluster"));
}

}  // namespace
}  // namespace dovetail::cli
