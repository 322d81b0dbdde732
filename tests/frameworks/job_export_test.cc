// Jobs in frameworks' words: what is written reads back as the job, what is given up is said, and what cannot be run is
// refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/job_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "frameworks/jobs/job_source.h"
#include "models/networks/text.h"
#include "tests/cli/tool.h"
#include "tests/support/drawn_jobs.h"
#include "tests/support/errors.h"
#include "tests/support/golden.h"

namespace dovetail::frameworks {
namespace {

using dovetail::testing::Drawn;
using dovetail::testing::drawn_job;
using dovetail::testing::error_of;
using dovetail::testing::kAnyKey;
using dovetail::testing::kRareKeys;
using dovetail::testing::uneven;
using jobs::Job;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class JobExportTest : public ::testing::Test {
 protected:
  JobExportTest() { std::filesystem::create_directories(folder_); }
  ~JobExportTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const {
    std::string path = (folder_ / name).string();
    write_file(path, text);
    return path;
  }

  // What is written, read as --job reads it.
  [[nodiscard]] Job read_back(const std::string& target, const JobExport& result) const {
    const std::string end = target == "torchtitan" ? ".toml"
                            : target == "megatron" ? ".sh"
                                                   : ".json";
    const std::string path = file("job" + end, result.text);
    return load_job(path + (result.behind.empty() ? "" : ":" + result.behind));
  }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  ("dovetail_job_export." + std::to_string(::getpid()));
};

JobExport written(const std::string& target, const std::string& job) {
  return export_job(target, load_job(job), {.version = "0", .job = job});
}

std::vector<std::string> given_up(const std::string& target, const std::string& job) {
  std::vector<std::string> words;
  for (const JobLoss& loss : written(target, job).losses) words.push_back(loss.what);
  return words;
}

std::string refusal(const std::string& target, const std::string& job) {
  return error_of([&] { written(target, job); });
}

// The work alone: who said it, and what could not be held, aside.
Job as_work(Job job) {
  job = jobs::in_effect(std::move(job));
  job.as = jobs::RunBy::Any;
  job.notes.clear();
  job.assumed.clear();
  return job;
}

void expect_same(const Job& here, const Job& there) {
  EXPECT_EQ(jobs::to_string(as_work(here)), jobs::to_string(as_work(there)));
  EXPECT_TRUE(as_work(here) == as_work(there));
}

const std::vector<std::string> kModels = {"llama3_8b",   "qwen3_0.6b",   "gpt3_175b",
                                          "gpt_oss_20b", "mixtral_8x7b", "deepseek_v3"};

// Configurations of other shapes, lengths of words and rotations than those of the models that have names.
const std::map<std::string, std::string> kConfigs = {
    {"linear.json",
     R"({"model_type": "llama", "num_hidden_layers": 6, "hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8,
         "num_key_value_heads": 4, "vocab_size": 50257, "rope_scaling": {"type": "linear", "factor": 4.0}})"},
    {"longrope.json",
     R"({"model_type": "mistral", "num_hidden_layers": 8, "hidden_size": 512, "intermediate_size": 1376, "num_attention_heads": 8,
         "num_key_value_heads": 4, "vocab_size": 32000, "sliding_window": null, "rope_theta": 1e6,
         "rope_parameters": {"rope_type": "longrope", "factor": 2.5}})"},
    {"llama3_0.json",
     R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 500000.0})"},
    {"moe.json",
     R"({"model_type": "qwen3_moe", "num_hidden_layers": 8, "hidden_size": 512, "moe_intermediate_size": 384, "head_dim": 64,
         "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32000, "num_experts": 16,
         "num_experts_per_tok": 4, "norm_topk_prob": true})"},
    {"gpt2.json",
     R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 4, "vocab_size": 50257})"},
};

// Of a model what frameworks' words hold: its shape, and how positions rotate.
Job in_words(Job job) {
  job.model.name = job.model.source = "";
  job.model.sequence = job.model.published = 0;
  job.model.gelu_new = job.model.joined_qkv = false;
  job.model.written = {.scale = job.model.written.scale.value_or(jobs::RotaryScale{})};
  return as_work(std::move(job));
}

// Words and job agree whatever is asked for: reading back gives what was announced, and the announced losses are the
// whole difference. Half of the draws give most keys, half a few.
TEST_F(JobExportTest, WhateverIsWrittenReadsBackAsWasSaid) {
  std::vector<std::string> models = kModels;
  for (const auto& [name, text] : kConfigs) models.push_back(file(name, text));
  std::vector<Drawn> keys = kAnyKey;
  keys.insert(keys.end(), kRareKeys.begin(), kRareKeys.end());
  std::set<std::string> drawn = {"layers"};
  for (const Drawn& key : keys) drawn.insert(key.key);
  for (const std::string& key : jobs::job_keys()) EXPECT_TRUE(drawn.contains(key)) << key;
  Random random(37);
  std::map<std::string, int> done;
  int jobs = 0;
  for (int draw = 0; jobs < 250 && draw < 2500; ++draw) {
    std::optional<Job> job = drawn_job(random, models, keys, 1 + draw % 2);
    if (!job) continue;
    ++jobs;
    if (random.between(0, 2) == 0) job = uneven(*job);
    for (const std::string& target : job_targets()) {
      SCOPED_TRACE(target + " " + jobs::to_string(*job));
      JobExport result{.as_run = *job};
      try {
        result = export_job(target, *job, {});
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), StartsWith("export: "));
        continue;
      }
      ++done[target];
      const Job last = result.losses.empty() ? *job : result.losses.back().after;
      Job unasked = last;
      if (!as_work(last).bucket_bytes) unasked.bucket_bytes = as_work(result.as_run).bucket_bytes;
      expect_same(in_words(unasked), in_words(result.as_run));
      EXPECT_THAT(result.notes, Not(Contains(HasSubstr("not known here")))) << target;
      if (target == "fsdp2") continue;
      Job back = read_back(target, result);
      if (target == "deepspeed")
        back.model.written.scale = result.as_run.model.written.scale;  // the program's own
      expect_same(in_words(back), in_words(result.as_run));
    }
  }
  EXPECT_EQ(jobs, 250);
  for (const std::string& target : job_targets()) EXPECT_GT(done[target], 15) << target;
}

// torchtitan casts by FSDP, and by autocast where it runs without it; no argument of Megatron's says autocast.
// Transformer Engine's alone.
TEST_F(JobExportTest, AScaleOfNarrowProductsIsGivenUpElsewhere) {
  const std::string job = "llama3_8b:dp_shard=8,products=fp8,scaling=tensor,as=megatron";
  EXPECT_TRUE(written("megatron", job).losses.empty());
  for (const char* target : {"torchtitan", "deepspeed", "fsdp2"}) {
    const std::vector<JobLoss> losses = written(target, job).losses;
    EXPECT_TRUE(std::ranges::any_of(losses, [](const JobLoss& loss) {
      return loss.what.starts_with("scaling=tensor");
    })) << target;
  }
}

TEST_F(JobExportTest, AutocastIsToldWhereItIs) {
  const std::string ddp = "llama3_8b:dp=4,autocast=bf16,bucket=100MiB,kernels=eager";
  EXPECT_THAT(given_up("torchtitan", ddp), IsEmpty());
  EXPECT_THAT(given_up("deepspeed", ddp + ",zero=2,overlap_params=no"), IsEmpty());
  EXPECT_THAT(given_up("torchtitan", "llama3_8b:dp_shard=4,autocast=bf16,kernels=eager"),
              ElementsAre(StartsWith("autocast=bf16, no there: ")));
  EXPECT_THAT(given_up("torchtitan", "llama3_8b:dp=4,bucket=100MiB,kernels=eager"),
              ElementsAre(StartsWith("autocast=no, bf16 there: ")));
  EXPECT_THAT(error_of([&] { written("megatron", ddp); }),
              HasSubstr("Megatron cannot run this job: autocast=bf16"));
}

// Nothing is lost of what a framework can be told, key by key.
TEST_F(JobExportTest, AJobThatTheFrameworkCanSayComesBackWhole) {
  const std::vector<Drawn> anywhere = {{"mbs", {"1", "2"}},
                                       {"gbs", {"96", "192"}},
                                       {"imbalance", {"1", "1.25"}},
                                       {"products", {"own", "fp8"}}};
  const std::vector<Drawn> degrees = {
      {"tp", {"1", "2", "4"}},    {"cp", {"1", "2"}},      {"exchange", {"all-gather", "ring"}},
      {"pp", {"1", "2"}},         {"vp", {"1", "2", "4"}}, {"ep", {"1", "2", "4"}},
      {"async_tp", {"no", "yes"}}};
  struct Told {
    std::string target;
    std::vector<std::string> models;
    std::vector<std::vector<Drawn>> keys;
  };
  const std::vector<Told> all = {
      {"torchtitan",
       {"llama3_8b", "qwen3_30b_a3b", "gpt_oss_20b"},
       {degrees,
        anywhere,
        {{"dp", {"1", "2"}},
         {"dp_shard", {"2", "4", "8"}},
         {"zero", {"3"}},
         {"reshard", {"yes", "no"}},
         {"recompute", {"none", "op", "full"}},
         {"recompute_layers", {"1"}}}}},
      {"megatron",
       kModels,
       {degrees,
        anywhere,
        {{"dp", {"1", "2", "4"}},
         {"zero", {"0", "1", "2"}},
         {"sp", {"yes"}},
         {"bucket", {"160MB", "40MB"}},
         {"overlap_params", {"yes", "no"}},
         {"flash", {"yes", "no"}},
         {"recompute", {"none", "selective", "full"}},
         {"recompute_layers", {"4"}}}}},
      {"megatron",
       kModels,
       {degrees,
        anywhere,
        {{"dp", {"1", "2"}},
         {"dp_shard", {"2", "4"}},
         {"zero", {"3"}},
         {"reduce", {"f32", "bf16"}},
         {"recompute", {"none", "selective", "full"}},
         {"optimizer", {"adam", "sgd"}}}}},
      {"deepspeed",
       {"llama3_8b", "llama2_13b"},
       {anywhere,
        {{"dp", {"2", "4"}},
         {"zero", {"1", "2"}},
         {"bucket", {"2GB", "100MB"}},
         {"overlap_grads", {"yes", "no"}},
         {"dtype", {"bf16", "f16"}},
         {"grads", {"f32", "bf16"}},
         {"reduce", {"f32", "bf16"}},
         {"recompute", {"none", "selective", "op", "full"}},
         {"flash", {"yes", "no"}}}}},
      {"deepspeed",
       {"llama3_8b", "mixtral_8x7b"},
       {anywhere,
        {{"dp", {"2", "4"}},
         {"zero", {"1", "2"}},
         {"autocast", {"bf16", "f16"}},
         {"overlap_grads", {"yes", "no"}}}}},
      {"deepspeed",
       {"llama3_8b", "mixtral_8x7b"},
       {anywhere,
        {{"dp_shard", {"2", "4"}},
         {"zero", {"3"}},
         {"prefetch", {"0", "1", "3"}},
         {"recompute", {"none", "selective", "op", "full"}},
         {"recompute_layers", {"3"}}}}},
  };
  for (const Told& told : all) {
    std::vector<Drawn> keys;
    for (const std::vector<Drawn>& some : told.keys)
      keys.insert(keys.end(), some.begin(), some.end());
    Random random(8);
    int whole = 0;
    for (int draw = 0; draw < 300; ++draw) {
      std::optional<Job> job = drawn_job(random, told.models, keys);
      if (!job) continue;
      if (told.target == "deepspeed" && job->zero < jobs::Zero::Parameters) {
        job->overlap_parameters = false;  // which it never does
      }
      const bool is_sharded = job->layout.dp_shard * job->layout.cp > 1;
      if (job->zero == jobs::Zero::Parameters && !is_sharded) continue;  // nothing to divide over
      SCOPED_TRACE(jobs::to_string(*job));
      try {
        const JobExport result = export_job(told.target, *job, {});
        std::string lost;
        for (const JobLoss& loss : result.losses) lost += loss.what + "; ";
        EXPECT_EQ(lost, "") << told.target;
        expect_same(read_back(told.target, result), *job);
        ++whole;
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), StartsWith("export: "));
      }
    }
    EXPECT_GT(whole, 20) << told.target;
  }
}

TEST_F(JobExportTest, WhatIsWrittenLooksSo) {
  const std::string pipelined =
      "llama3_8b:tp=2,pp=2,vp=2,dp_shard=2,seq=8192,mbs=1,gbs=16,recompute=full,reshard=no";
  EXPECT_TRUE(
      matches_golden("frameworks/job_torchtitan.toml", written("torchtitan", pipelined).text));
  const std::string experts =
      "gpt_oss_20b:tp=2,pp=5,dp=8,ep=8,zero=1,seq=8192,gbs=80,bucket=160MB,async_tp=yes,prefetch=2";
  EXPECT_TRUE(matches_golden("frameworks/job_megatron.sh", written("megatron", experts).text));
  const std::string sharded = "llama3_8b:dp=2,dp_shard=8,seq=8192,gbs=64,reshard=no,recompute=full";
  EXPECT_TRUE(matches_golden("frameworks/job_deepspeed.json", written("deepspeed", sharded).text));
  EXPECT_TRUE(matches_golden("frameworks/job_fsdp2.py", written("fsdp2", sharded).text));
}

TEST_F(JobExportTest, WhatCannotBeToldIsGivenUpWithTheReason) {
  EXPECT_THAT(given_up("torchtitan", "llama3_8b:dp_shard=8,prefetch=2,reduce=bf16"),
              ElementsAre("reduce=bf16, f32 there: mixed_precision_reduce is float32",
                          StartsWith("prefetch=2, 1 there: FSDP2 gathers the next layer")));
  EXPECT_THAT(given_up("deepspeed", "llama3_8b:dp=8,tp=2,zero=1"),
              ElementsAre("sp=yes, no there: AutoTP has no sequence parallelism",
                          StartsWith("overlap_params=yes, no there: stages 1 and 2 gather")));
  EXPECT_THAT(given_up("megatron", "llama3_8b:dp=2,dp_shard=4,zero=1,overlap_grads=no"),
              ElementsAre(StartsWith("dp=2, 8 there: shards and replicas are one group"),
                          StartsWith("dp_shard=4, 1 there: shards and replicas are one group"),
                          StartsWith("overlap_params=yes, no there: ")));
  EXPECT_THAT(given_up("deepspeed", "llama3_8b:dp=2,dp_shard=4"),
              ElementsAre(StartsWith("dp=2, 1 there: "), StartsWith("dp_shard=4, 8 there: ")));
  // Megatron's linear factor is whole, and it has no "dynamic".
  const auto rotated = [this](const std::string& scaling) {
    return file(
               "rotated.json",
               R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256,
      "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "rope_theta": 500000,
      "rope_scaling": )" +
                   scaling + "}") +
           ":dp_shard=8";
  };
  EXPECT_THAT(written("megatron", rotated(R"({"type": "linear", "factor": 4})")).text,
              HasSubstr("--rotary-seq-len-interpolation-factor 4\n"));
  EXPECT_THAT(given_up("megatron", rotated(R"({"type": "linear", "factor": 4})")), IsEmpty());
  EXPECT_THAT(given_up("megatron", rotated(R"({"type": "linear", "factor": 2.5})")),
              ElementsAre(StartsWith("rope_scaling=linear x 2.5 of base 500000, linear x 3 of ")));
  EXPECT_THAT(given_up("megatron", rotated(R"({"rope_type": "dynamic", "factor": 2})")),
              ElementsAre(StartsWith("rope_scaling=dynamic x 2 of base 500000, default of base")));
  EXPECT_THAT(given_up("torchtitan", rotated(R"({"type": "linear", "factor": 4})")),
              ElementsAre(StartsWith("rope_scaling=linear x 4 of base 500000, llama3 x 8 of ")));
  EXPECT_THAT(given_up("deepspeed", rotated(R"({"type": "linear", "factor": 4})")), IsEmpty());
  // 50,257 words are no multiple of two.
  const std::string gpt2 = file("config.json", R"({"model_type": "llama", "num_hidden_layers": 2,
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 50257,
    "max_position_embeddings": 4096, "tie_word_embeddings": false})");
  EXPECT_THAT(given_up("megatron", gpt2 + ":tp=2"),
              ElementsAre("a vocabulary of 50257, 50258 there: it is padded to a multiple of tp"));
  EXPECT_THAT(
      given_up("fsdp2", "llama3_8b:dp_shard=8,grads=bf16,prefetch=0"),
      ElementsAre(StartsWith("grads=bf16, f32 there: "), StartsWith("prefetch=0, 1 there")));
}

// torchtitan has both orders, of two chunks a stage and not compiled; the others have neither.
TEST_F(JobExportTest, OrdersThatSplitBackwardAreToldToTorchtitan) {
  const std::string layout = "llama3_8b:pp=2,dp_shard=4,gbs=16,reshard=no,vp=2,schedule=";
  for (const auto& [order, word] : {std::pair("zero-bubble", "\"InterleavedZeroBubble\""),
                                    std::pair("zbv", "\"ZBVZeroBubble\"")}) {
    const std::string job = layout + order + ",kernels=eager";
    const JobExport result = written("torchtitan", job);
    EXPECT_THAT(result.text, HasSubstr(word));
    EXPECT_THAT(given_up("torchtitan", job), IsEmpty());
    expect_same(read_back("torchtitan", result), load_job(job));
  }
  EXPECT_THAT(
      given_up("torchtitan", layout + "zbv"),
      ElementsAre(
          "kernels=fused, eager there: asynchronous tp is compiled, what splits backward is not"));
  EXPECT_THAT(
      given_up("torchtitan", "llama3_8b:pp=2,dp_shard=4,gbs=16,reshard=no,schedule=zero-bubble"),
      ElementsAre("schedule=zero-bubble, 1f1b there: without chunks its pipelines are 1F1B"));
  EXPECT_THAT(refusal("torchtitan", layout + "zbv,tp=2,async_tp=yes"), HasSubstr("cannot be"));
  EXPECT_THAT(
      given_up("megatron", "llama3_8b:pp=2,dp=4,gbs=16,vp=2,schedule=zbv"),
      ElementsAre(
          "schedule=zbv, interleaved there: its pipelines are 1F1B, with chunks interleaved"));
}

TEST_F(JobExportTest, WhatIsNotInEffectIsNoLoss) {
  EXPECT_THAT(given_up("torchtitan", "llama3_8b:dp_shard=8,bucket=25MiB,overlap_params=no,sp=no"),
              IsEmpty());
  EXPECT_THAT(given_up("megatron", "llama3_8b:dp=8,prefetch=3,reshard=no,recompute_layers=4"),
              IsEmpty());
}

TEST_F(JobExportTest, WhatCannotBeRunIsRefusedInOneLine) {
  EXPECT_THAT(
      refusal("torchtitan", "llama3_8b:dp=8,zero=1"),
      StartsWith("export: torchtitan cannot run this job: zero=1, and it divides everything"));
  EXPECT_THAT(refusal("torchtitan", "llama3_8b:dp=4,tp=2"), HasSubstr("DDP beside another"));
  EXPECT_THAT(refusal("torchtitan", "llama2_7b:dp_shard=8"), HasSubstr("no flavor of llama2_7b"));
  EXPECT_THAT(refusal("torchtitan", "llama3_8b:dp_shard=8,optimizer=muon"), HasSubstr("Adam only"));
  EXPECT_THAT(refusal("torchtitan", "llama3_8b:dp_shard=8,dtype=f16"), HasSubstr("bf16 and f32"));
  EXPECT_THAT(refusal("torchtitan", "llama3_8b:dp_shard=2,cp=2,seq=4098"),
              HasSubstr("seq=4098 is no multiple of 2 x cp x tp=4"));
  EXPECT_THAT(refusal("torchtitan", "mixtral_8x7b:dp_shard=8,ep=4"), HasSubstr("no flavor"));
  EXPECT_THAT(refusal("torchtitan", "qwen3_8b:dp_shard=8,pp=2"),
              HasSubstr("pp=2, and its qwen3 has no pipelines"));
  EXPECT_THAT(refusal("torchtitan", "deepseek_v3:dp_shard=8,cp=2"),
              HasSubstr("cp=2, and its deepseek_v3 has no context parallelism"));
  EXPECT_THAT(refusal("megatron", "vit_b16:dp=8"), HasSubstr("a model of pictures"));
  EXPECT_THAT(refusal("megatron", "gpt3_175b:tp=8,seq=4096"), HasSubstr("longer than gpt3_175b's"));
  EXPECT_THAT(refusal("megatron", "llama3_8b:dp_shard=8,optimizer=muon"),
              HasSubstr("Megatron-FSDP"));
  EXPECT_EQ(refusal("deepspeed", "llama3_8b:pp=2,dp=4"),
            "export: ds_config.json cannot say this job: pp=2 is the program's own code (it has "
            "dp, tp, zero)");
  EXPECT_THAT(refusal("fsdp2", "llama3_8b:dp=8,zero=2"), HasSubstr("zero=2, and it divides"));
  EXPECT_THAT(refusal("fsdp2", "mixtral_8x7b:dp_shard=8,ep=4"), HasSubstr("--to torchtitan"));
  EXPECT_EQ(refusal("fsdp", "llama3_8b:dp_shard=8"),
            "--to \"fsdp\": did you mean fsdp2? (for a job there are torchtitan, megatron, "
            "deepspeed, fsdp2)");
}

TEST_F(JobExportTest, TargetsAreThoseThatCanRunItBestFirst) {
  const auto targets_of = [](const std::string& job) {
    std::vector<std::string> ids;
    for (const JobTarget& target : job_targets_of(load_job(job))) ids.push_back(target.id);
    return ids;
  };
  EXPECT_THAT(targets_of("llama3_8b:dp=4,tp=2,zero=1"), ElementsAre("megatron", "deepspeed"));
  EXPECT_THAT(targets_of("llama3_8b:dp_shard=8,prefetch=2,cp=2"),
              ElementsAre("fsdp2", "megatron", "torchtitan"));
  EXPECT_THAT(targets_of("llama3_8b:dp_shard=8,as=megatron").front(), "megatron");
  EXPECT_THAT(targets_of("vit_b16:dp=4,pp=2"), IsEmpty());
}

TEST_F(JobExportTest, Fsdp2sFileReducesInEachMicroBatchOrInTheLast) {
  const std::string job = "llama3_8b:dp_shard=8,gbs=32";
  EXPECT_THAT(written("fsdp2", job).text, HasSubstr("\nSYNC_EACH = True "));
  EXPECT_THAT(written("fsdp2", job + ",sync_each=no").text, HasSubstr("\nSYNC_EACH = False "));
  EXPECT_THAT(given_up("fsdp2", job + ",sync_each=no"), IsEmpty());
}

TEST_F(JobExportTest, WhatPyTorchLeavesOfAsyncTensorParallelismIsANote) {
  for (const char* target : {"torchtitan", "fsdp2"}) {
    const JobExport one = written(target, "llama3_8b:dp_shard=4,tp=2,gbs=4,async_tp=yes");
    EXPECT_THAT(one.notes, Contains(HasSubstr("one sample a micro-batch no gather"))) << target;
    const JobExport two = written(target, "llama3_8b:dp_shard=4,tp=2,mbs=2,gbs=8,async_tp=yes");
    EXPECT_THAT(two.notes, Contains(HasSubstr("the reduce-scatters of backward"))) << target;
  }
}

// Hybrid shards of eight layers ahead of each other, on models of four layers (tests/frameworks/check_fsdp2_job.py).
TEST_F(JobExportTest, Fsdp2sFileShardsAModelOfEitherNames) {
  const std::string path =
      file("job_fsdp2.py", written("fsdp2",
                                   "llama3_8b:dp=2,dp_shard=4,cp=2,tp=2,seq=8192,gbs=32,prefetch=2,"
                                   "recompute=full,recompute_layers=3,reduce=bf16,sync_each=no")
                               .text);
  const dovetail::testing::Ended ended = dovetail::testing::run_command(
      "python3 " DOVETAIL_SOURCE_DIR "/tests/frameworks/check_fsdp2_job.py " + path);
  ASSERT_EQ(ended.code, 0) << ended.output;
  const auto all = nlohmann::json::parse(ended.output);
  for (const char* const model : {"torchtitan", "hugging_face"}) {
    const auto& found = all[model];
    EXPECT_EQ(found["mesh"].dump(), R"({"dp_replicate":2,"fsdp":8,"pp":1,"tp":2})");
    EXPECT_EQ(found["policies"].dump(), R"([["bfloat16","bfloat16"]])");
    EXPECT_EQ(found["calls"].dump(),
              R"([[["embedding"],[2,8],true],[["layer0"],[2,8],true],[["layer1"],[2,8],true],)"
              R"([["layer2"],[2,8],true],[["layer3"],[2,8],true],[["norm","head"],[2,8],false],)"
              R"([["model"],[2,8],false]])");
    EXPECT_EQ(found["recomputed"].dump(), R"(["layer0","layer1","layer2"])");
    EXPECT_EQ(found["forward"].dump(),
              R"([["layer1","layer2"],["layer2","layer3"],["layer3"],[]])");
    EXPECT_EQ(found["backward"].dump(),
              R"([[],["layer0"],["layer1","layer0"],["layer2","layer1"]])");
    EXPECT_EQ(found["sync"].dump(), "[false,true]");  // first and last of four micro-batches
  }
  EXPECT_EQ(all["last_stage"]["calls"].size(), 6);
}

}  // namespace
}  // namespace dovetail::frameworks
