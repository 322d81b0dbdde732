// explore --job and plan --job: a table of a job's variants, of all layouts, as JSON, and what is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/explore_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "cli/explore.h"
#include "cli/export.h"
#include "cli/plan.h"
#include "cli/predict.h"
#include "tests/support/errors.h"
#include "tests/support/job_models.h"

namespace dovetail::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Four layers, four heads.
const std::string kTiny =
    std::string(DOVETAIL_SOURCE_DIR) + "/tests/models/networks/data/tiny_llama/config.json";

ExploreOptions options_of(const std::string& job, const std::string& cluster) {
  ExploreOptions options;
  options.inputs.data_dir = DOVETAIL_DATA_DIR;
  options.job = job;
  options.clusters = {cluster};
  return options;
}

std::string explored(const std::string& job, const std::string& cluster) {
  std::ostringstream out;
  EXPECT_EQ(explore(options_of(job, cluster), out), 0);
  return out.str();
}

TEST(ExploreJobTest, ShowsTheJobBesideItsVariants) {
  const std::string text =
      explored(testing::kShortLlama + ":tp=2,pp=2,dp=2,gbs=8,zero=1", "h100x8");
  for (const char* const words :
       {"as asked", "async_tp=yes", "tokens/s/GPU", "MFU", "were simulated", "exposed tp", "bubble",
        "peak GiB", "stages of", "best: ", "dovetail plan --job", "next: dovetail export --job"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
}

TEST(ExploreJobTest, PlaysAllMicroBatchesWhereSomebodyAsks) {
  const std::string job = testing::kShortLlama + ":pp=2,dp=4,gbs=64";
  ExploreOptions options = options_of(job, "h100x8");
  options.whole = true;
  std::ostringstream out;
  EXPECT_EQ(explore(options, out), 0);
  EXPECT_EQ(out.str(), explored(job, "h100x8"));
  options.job.clear();
  options.workloads = {"mlp"};
  EXPECT_THAT([&] { explore(options, out); },
              ::testing::ThrowsMessage<InputError>(HasSubstr("--whole is about a --job")));
}

TEST(ExploreJobTest, SaysWhereTheStepAndTheGainMayLie) {
  const std::string near = explored(kTiny + ":dp_shard=8,gbs=8,recompute=full", "h100x8");
  EXPECT_THAT(near, HasSubstr("p5 to p95"));
  EXPECT_THAT(near, HasSubstr(" % less than as asked ("));
  EXPECT_THAT(near, ::testing::ContainsRegex("less to [0-9.]+ % (less|more)\\)"));
  // With tensor parallelism over nodes public ratios tell no interval.
  const std::string far =
      explored(testing::kShortLlama + ":tp=8,gbs=16,recompute=full", "h200_nodes_of_4x8");
  EXPECT_THAT(far, HasSubstr("than as asked (public ratios of two layouts there: off by up to x"));
}

// All in bf16, without a master copy: a loop of somebody's own.
TEST(ExploreJobTest, SetsNothingThatIsSlowerThanWhatNoFrameworkSays) {
  const std::string text =
      explored(testing::kShortLlama +
                   ":gbs=1,seq=1024,kernels=transformers,grads=bf16,reduce=bf16,"
                   "master=0,states=4",
               "h100x1");
  EXPECT_THAT(text, HasSubstr("nothing: no framework's file says the job as asked, and what they "
                              "say is slower"));
  EXPECT_THAT(text, HasSubstr("as asked; of what a framework runs the best, "));
}

TEST(ExploreJobTest, ShowsTheFastestRowsAndTheJobAsAsked) {
  const std::string job = "llama3_8b:tp=2,dp_shard=4,gbs=64,recompute=full";
  const std::string few = explored(job, "h200x8");
  EXPECT_THAT(few, ::testing::ContainsRegex("\n[0-9]+ more rows?: --all\n"));
  EXPECT_THAT(few, HasSubstr("\nas asked "));
  ExploreOptions options = options_of(job, "h200x8");
  options.detail.all = true;
  std::ostringstream all;
  EXPECT_EQ(explore(options, all), 0);
  EXPECT_THAT(all.str(), Not(HasSubstr("--all")));
  EXPECT_GT(all.str().size(), few.size());
}

// Of 4 layers each 4 adapters of 64 + 64 and 3 of 64 + 128, 4 wide.
TEST(ExploreJobTest, SaysWhatOfALoraJobTrains) {
  const std::string text = explored(kTiny + ":dp_shard=2,lora=4", "h100x8");
  EXPECT_THAT(text, HasSubstr("LoRA: 17408 trained parameters beside "));
  EXPECT_THAT(
      text,
      HasSubstr(
          "MFU of the peak of bf16, by what is computed (of a frozen weight 4 FLOP a token)"));
  ExploreOptions options = options_of(kTiny + ":dp_shard=2,lora=4", "h100x8");
  options.document.json = true;
  std::ostringstream out;
  EXPECT_EQ(explore(options, out), 0);
  EXPECT_EQ(nlohmann::json::parse(out.str()).at("trained_parameters"), 17'408);
}

TEST(ExploreJobTest, WithoutALayoutAllOfThemAreTried) {
  const std::string text = explored(testing::kShortLlama + ":gbs=16,seq=2048", "h100x8");
  EXPECT_THAT(text, ::testing::ContainsRegex("\nleft:  at most [0-9.]+ % in any of [0-9]{4} jobs"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\n[0-9]{4} jobs: [0-9]+ have no room, [0-9]+ are "
                                             "slower whatever overlaps, [0-9]+ were simulated"));
}

TEST(ExploreJobTest, WhatDoesNotFitIsNeverBest) {
  const std::string text =
      explored(testing::kShortLlama + ":dp_shard=8,seq=131072,gbs=16", "h100x8");
  EXPECT_THAT(text, HasSubstr("as asked it takes"));
  EXPECT_THAT(text, HasSubstr("does not fit"));
  ExploreOptions options = options_of(testing::kShortLlama + ":dp=8,seq=131072", "h100x8");
  options.document.json = true;
  std::ostringstream out;
  explore(options, out);
  const auto document = nlohmann::ordered_json::parse(out.str());
  EXPECT_EQ(document["kind"], "jobs");
  EXPECT_TRUE(document["best"].is_null());
  for (const auto& row : document["rows"]) {
    EXPECT_EQ(row["room"], "no");
    EXPECT_FALSE(row["fits"]);
    EXPECT_LT(row["peak_interval"]["low_bytes"], row["peak_bytes"]);
  }
}

nlohmann::ordered_json explored_json(const std::string& job, const std::string& cluster) {
  ExploreOptions options = options_of(job, cluster);
  options.document.json = true;
  std::ostringstream out;
  EXPECT_EQ(explore(options, out), 0);
  return nlohmann::ordered_json::parse(out.str());
}

// A world of one rank is a layout, however it is said.
TEST(ExploreJobTest, OneGpuIsALayout) {
  for (const char* const keys :
       {":dp=1,gbs=1", ":gbs=1", ":tp=1,gbs=1", ":dp=1,gbs=1,lora=4", ":gbs=2"}) {
    const auto found = explored_json(kTiny + keys, "h100x1");
    EXPECT_EQ(found["world_size"], 1) << keys;
    EXPECT_EQ(found["idle_ranks"], 0) << keys;
    ASSERT_TRUE(found["best"].is_number()) << keys;
    EXPECT_GE(found["jobs"]["all"], 1) << keys;
  }
}

TEST(ExploreJobTest, RanksWithoutWorkAreSaid) {
  const std::string note = "6 ranks of the machine are idle: the job has 2";
  EXPECT_EQ(explored_json(kTiny + ":tp=2,gbs=2", "h100x8")["idle_ranks"], 6);
  EXPECT_THAT(explored(kTiny + ":tp=2,gbs=2", "h100x8"), HasSubstr(note));
  EXPECT_THAT(explored(kTiny + ":tp=2,dp=4,gbs=8", "h100x8"), Not(HasSubstr("idle")));
  PlanOptions options;
  options.inputs.data_dir = DOVETAIL_DATA_DIR;
  options.inputs.cluster = "h100x8";
  options.job = kTiny + ":tp=2,gbs=2";
  std::ostringstream out;
  plan(options, out);
  EXPECT_THAT(out.str(), HasSubstr(note));
}

// "set:" and "too little to tell" are never in one answer.
TEST(ExploreJobTest, NothingIsSetWhereItIsTooLittleToTell) {
  const std::string text =
      explored(testing::kShortLlama + ":dp_shard=8,gbs=32,mbs=4,seq=2048", "h100x8");
  EXPECT_THAT(text, ::testing::StartsWith("set:   nothing: too little to tell\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("gives: [^\n]+"));
  EXPECT_THAT(text, HasSubstr("the fastest"));
  EXPECT_THAT(text, HasSubstr("best: as asked\n"));
}

// A loss in chunks: the files that are written know none, and without one there is no room.
TEST(ExploreJobTest, WhatFitsAndNobodySaysIsAnsweredAsAsked) {
  const std::string text =
      explored("qwen3_0.6b:dp=2,seq=65536,gbs=2,recompute=full,loss=chunked,autocast=bf16,as=torch",
               "h100x8");
  EXPECT_THAT(text, ::testing::StartsWith("set:   nothing: no framework's file that is written"));
  EXPECT_THAT(text, HasSubstr("as asked"));
  EXPECT_THAT(text, Not(HasSubstr("more GPUs")));
}

// Adapters under DDP: whole weights in their place are another training.
TEST(ExploreJobTest, NobodyIsToldToTrainWithoutTheAdapters) {
  const std::string text = explored(kTiny + ":dp=2,gbs=4,lora=4,as=torch", "h100x8");
  EXPECT_THAT(text, HasSubstr("lora=4"));
  EXPECT_THAT(text, Not(HasSubstr("lora=0")));
  EXPECT_THAT(text, Not(HasSubstr("--to megatron")));
}

TEST(ExploreJobTest, WhatIsFasterAndNobodySaysIsNamed) {
  const std::string job = testing::kShortLlama + ":tp=2,pp=2,dp=2,vp=2,gbs=16,seq=1024";
  const std::string text = explored(job, "h100x8");
  EXPECT_THAT(text, ::testing::ContainsRegex("faster, but no framework says it: [^\n]*schedule=z"));
  EXPECT_THAT(text, HasSubstr("nobody says it"));
  for (const auto& row : explored_json(job, "h100x8")["rows"]) {
    const bool splits = row["job"].get<std::string>().find("schedule=z") != std::string::npos;
    EXPECT_EQ(row["said_by"].is_null(), splits) << row["change"];
  }
}

TEST(ExploreJobTest, PartsOfAStageAddUpToItsStep) {
  ExploreOptions options = options_of(kTiny + ":tp=2,cp=2,pp=2,gbs=8", "h100x8");
  options.document.json = true;
  std::ostringstream out;
  explore(options, out);
  const auto document = nlohmann::ordered_json::parse(out.str());
  for (const auto& row : document["rows"]) {
    for (const auto& stage : row["stages"]) {
      double sum = stage["compute_us"].get<double>() + stage["bubble_us"].get<double>();
      for (const auto& part : stage["exposed_us"]) sum += part.get<double>();
      EXPECT_NEAR(sum, row["step_us"].get<double>(), 0.02 * row["step_us"].get<double>());
    }
  }
}

// The same step by its plan file: the same parts, in words and as JSON.
TEST(ExploreJobTest, ThePlanOfAJobHasTheSameStages) {
  const std::string job = testing::kShortLlama + ":tp=2,pp=2,dp=2,gbs=8,seq=1024,as=megatron";
  const std::string file = (std::filesystem::temp_directory_path() /
                            ("dovetail_stages_" + std::to_string(getpid()) + ".json"))
                               .string();
  PlanOptions planned;
  planned.inputs.data_dir = DOVETAIL_DATA_DIR;
  planned.inputs.cluster = "h100x8";
  planned.job = job;
  planned.output = file;
  std::ostringstream out;
  plan(planned, out);
  PredictOptions predicted;
  predicted.data_dir = DOVETAIL_DATA_DIR;
  predicted.plans = {file};
  predicted.clusters = {"h100x8"};
  std::ostringstream text;
  predict(predicted, text);
  EXPECT_THAT(text.str(),
              HasSubstr("stage  compute ms  exposed dp  exposed tp  exposed pp  bubble"));
  predicted.document.json = true;
  std::ostringstream json;
  predict(predicted, json);
  std::filesystem::remove(file);
  ExploreOptions options = options_of(job, "h100x8");
  options.document.json = true;
  std::ostringstream table;
  explore(options, table);
  const auto explored_rows = nlohmann::ordered_json::parse(table.str());
  const auto predicted_rows = nlohmann::ordered_json::parse(json.str());
  for (const auto& row : explored_rows["rows"]) {
    if (row["change"] != "as asked") continue;
    const auto& stages = predicted_rows["rows"][0]["stages"];
    ASSERT_EQ(stages.size(), 2U);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      for (const char* const part : {"compute_us", "exposed_us", "bubble_us"}) {
        EXPECT_EQ(stages[i][part], row["stages"][i][part]) << part;
      }
    }
  }
}

// A family is machines of any size: the job says of how many ranks.
TEST(ExploreJobTest, AFamilyHasAsManyRanksAsTheJob) {
  std::ostringstream out;
  explore(options_of("llama3_8b:dp_shard=16,gbs=64", "h100"), out);
  EXPECT_THAT(out.str(), HasSubstr("on h100: 16 GPUs"));
}

TEST(ExploreJobTest, RefusalsAreOneLine) {
  const auto refusal = [](const ExploreOptions& options) {
    std::ostringstream out;
    try {
      explore(options, out);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(options_of("llama3_8b:tp=3", "h100x8")), HasSubstr("does not divide heads"));
  ExploreOptions both = options_of("llama3_8b:dp=8", "h100x8");
  both.workloads = {"resnet50"};
  EXPECT_THAT(refusal(both), HasSubstr("give one of them"));
  EXPECT_THAT(refusal(options_of("llama3_8b:dp=16", "h100x8")),
              HasSubstr("the job has 16 ranks, cluster h100x8 has 8"));
  EXPECT_THAT(refusal(options_of("llama3_8b", "h100x8")), HasSubstr("needs gbs="));
  ExploreOptions swept = options_of("llama3_8b:dp=8", "h100x8");
  swept.thresholds = "1MiB:4MiB";
  EXPECT_THAT(refusal(swept), HasSubstr("--thresholds has no effect"));
  EXPECT_THAT(refusal(ExploreOptions{}), HasSubstr("--workload or a --job"));
}

// The line that explore prints, followed for each target: what is written is what was best.
TEST(ExportJobTest, FollowsTheLineOfExplore) {
  const std::string text = explored("qwen3_0.6b:dp_shard=2,seq=512,gbs=2,as=fsdp", "h100x2");
  const std::size_t at = text.find("next: dovetail export --job \"");
  ASSERT_NE(at, std::string::npos) << text;
  const std::string job = text.substr(at + 29, text.find('"', at + 29) - at - 29);
  EXPECT_THAT(job, ::testing::StartsWith("qwen3_0.6b:"));
  const std::string path =
      ::testing::TempDir() + "export_job." + std::to_string(::getpid()) + ".toml";
  ExportCommandOptions options{.job = job,
                               .target = "torchtitan",
                               .output = path,
                               .cluster = "h100x2",
                               .data_dir = DOVETAIL_DATA_DIR};
  std::ostringstream out;
  export_plan(options, out);
  EXPECT_THAT(out.str(),
              HasSubstr(": a job as TOML, for torchtitan 0.2.2\npredicted (simulated) "));
  EXPECT_THAT(out.str(), HasSubstr("to see it: dovetail explore --job " + path + " --cluster"));
  EXPECT_THAT(explored(path, "h100x2"), HasSubstr("as asked"));
  std::filesystem::remove(path);
}

TEST(ExportJobTest, PricesWhatIsGivenUp) {
  const std::string path =
      ::testing::TempDir() + "export_job." + std::to_string(::getpid()) + ".sh";
  ExportCommandOptions options{.job = "llama3_8b:dp_shard=8,seq=2048,reshard=no",
                               .target = "megatron",
                               .output = path,
                               .cluster = "h100x8",
                               .data_dir = DOVETAIL_DATA_DIR};
  std::ostringstream priced;
  export_plan(options, priced);
  EXPECT_THAT(priced.str(),
              ::testing::ContainsRegex("given up: reshard=no, yes there: .*: [+]?[-0-9.]+ %\n"));
  options.cluster.clear();
  std::ostringstream unpriced;
  export_plan(options, unpriced);
  EXPECT_THAT(unpriced.str(), HasSubstr("given up: reshard=no, yes there: "));
  EXPECT_THAT(unpriced.str(), Not(HasSubstr("predicted (simulated)")));
  EXPECT_THAT(unpriced.str(), ::testing::ContainsRegex("predicted memory [0-9.]+ GiB a rank as it "
                                                       "is run there, [0-9.]+ GiB as asked\n"));
  std::filesystem::remove(path);
}

TEST(ExportJobTest, TakesAPlanOrAJob) {
  const auto refusal = [](const ExportCommandOptions& options) {
    std::ostringstream out;
    return testing::error_of([&] { export_plan(options, out); });
  };
  EXPECT_EQ(refusal({.target = "megatron"}), "export: give a plan file or --job");
  EXPECT_EQ(refusal({.plan = "p", .job = "llama3_8b:dp=8", .target = "megatron"}),
            "export: give a plan file or --job");
}

// A plan of several stages or groups, for those who take it.
class StagedExportTest : public ::testing::Test {
 protected:
  ~StagedExportTest() override { std::filesystem::remove_all(folder_); }

  // What plan says, which writes the file.
  std::string planned(const std::string& keys) const {
    std::filesystem::create_directories(folder_);
    PlanOptions options;
    options.inputs.data_dir = DOVETAIL_DATA_DIR;
    options.inputs.cluster = "h100x8";
    options.job = keys;
    options.output = folder_ + "/plan.json";
    std::ostringstream out;
    plan(options, out);
    return out.str();
  }
  [[nodiscard]] std::string exported(const std::string& target) const {
    std::ostringstream out;
    try {
      export_plan({.plan = folder_ + "/plan.json", .target = target, .data_dir = DOVETAIL_DATA_DIR},
                  out);
    } catch (const InputError& error) {
      return error.what();
    }
    return out.str();
  }

 private:
  std::string folder_ = ::testing::TempDir() + "staged_export." + std::to_string(::getpid());
};

// Gradients of the first stage, 394 kB, in buckets of 100 kB and more; those of the second are one bucket.
TEST_F(StagedExportTest, MegatronGetsOneBucketSizeAndItsOverlap) {
  const std::string said = planned(kTiny + ":pp=2,dp=4,gbs=16,zero=1,bucket=100KB");
  EXPECT_THAT(said, HasSubstr("plan.json --to megatron (or fsdp)\n"));
  EXPECT_THAT(said, HasSubstr("\n       dovetail export --job"));
  const std::string text = exported("megatron");
  EXPECT_THAT(text, ::testing::ContainsRegex("#   stage 0: [2-9][0-9]* buckets of up to [0-9]+"));
  EXPECT_THAT(text, HasSubstr("#   stage 1: 1 bucket of "));
  EXPECT_THAT(text, HasSubstr("\n--pipeline-model-parallel-size 2\n--use-distributed-optimizer\n"
                              "--overlap-grad-reduce\n--overlap-param-gather\n--ddp-bucket-size "));
  EXPECT_THAT(text, HasSubstr("one bucket for each other"));
  EXPECT_THAT(exported("torch"), HasSubstr("dovetail export --job writes the job that it was"));
}

TEST_F(StagedExportTest, FsdpTakesStagesAndReplicas) {
  planned(kTiny + ":pp=2,dp=2,dp_shard=2,gbs=16,prefetch=2");
  const std::string text = exported("fsdp");
  EXPECT_THAT(text, HasSubstr("STAGES = 2\nRESHARD_AFTER_FORWARD = True\nFORWARD_PREFETCH = 2"));
  EXPECT_THAT(text, HasSubstr("mesh has two dimensions: replicas, then shards"));
  EXPECT_THAT(exported("megatron"), HasSubstr("--num-distributed-optimizer-instances 2"));
}

TEST_F(StagedExportTest, ExpertsHaveBuffersOfTheirOwn) {
  planned(std::string(DOVETAIL_SOURCE_DIR) +
          "/tests/models/networks/data/tiny_mixtral/config.json:dp=8,ep=2,gbs=16,zero=1");
  EXPECT_THAT(exported("megatron"), HasSubstr("#   stage 0: 2 buckets of up to"));
  EXPECT_THAT(exported("fsdp"), HasSubstr("dovetail export --job --to torchtitan"));
}

TEST(PlanJobTest, TheJobDecidesUnlessAPolicyDoes) {
  PlanOptions options;
  options.inputs.data_dir = DOVETAIL_DATA_DIR;
  options.inputs.cluster = "h100x8";
  options.job = kTiny + ":pp=2,dp=4,gbs=16";
  options.json = true;
  std::ostringstream own;
  plan(options, own);
  EXPECT_THAT(own.str(), HasSubstr("stages=2+torch-ddp"));
  options.policy = "threshold:cap=8MiB";
  std::ostringstream other;
  plan(options, other);
  EXPECT_THAT(other.str(), HasSubstr("stages=2+threshold:cap=8MiB"));
}

}  // namespace
}  // namespace dovetail::cli
