// A job's text (MODEL:KEY=VALUE,...): what is read of it, that what is printed reads back, what is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/text.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "models/networks/decisions.h"
#include "models/networks/program.h"
#include "tests/support/job_models.h"

namespace dovetail::jobs {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_job(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(JobTextTest, OneLineSaysAJob) {
  const Job job = parse_job("llama3_70b:tp=8,pp=4,dp=2,seq=8192,mbs=1,gbs=64,recompute=selective");
  EXPECT_EQ(job.layout.world(), 64);
  EXPECT_EQ(job.layout.stage_ranks(), 16);
  EXPECT_EQ(job.micro_batches(), 32);
  EXPECT_EQ(job.tokens(), 64 * 8192);
  EXPECT_EQ(job.recompute, Recompute::Selective);
  EXPECT_TRUE(job.layout.sp);
}

TEST(JobTextTest, WhatIsPrintedIsReadAgain) {
  for (const std::string text :
       {"llama3_8b:dp_shard=8",
        "llama3_70b:tp=8,pp=4,dp=2,gbs=64,recompute=full,recompute_layers=3",
        "deepseek_v3:dp_shard=64,ep=64,imbalance=1.25,optimizer=muon",
        "qwen3_8b:dp=2,grads=bf16,reduce=bf16,bucket=26214400B,optimizer=sgd",
        "llama3_8b:pp=2,vp=2,gbs=8,schedule=interleaved,zero=1",
        "llama3_8b:pp=4,gbs=6,schedule=zero-bubble", "llama3_8b:pp=4,vp=2,gbs=6,schedule=zbv",
        "llama3_8b:pp=4,layers=9/9/8/6,gbs=8,kernels=eager",
        "llama3_70b:pp=8,layers=9/10x5/11/10,gbs=8",
        "deepseek_v3:dp=8,recompute=selective,recompute_modules=layernorm+moe_act+mla_up_proj",
        "llama3_8b:tp=4,dp=2,zero=1,as=megatron", "gpt2:autocast=bf16",
        "gpt2:autocast=f16,grads=bf16,dp=2", "llama3_8b:optimizer=sgd,states=8"}) {
    const Job job = parse_job(text);
    const Job again = parse_job(to_string(job));
    EXPECT_EQ(job, again) << text << " is printed as " << to_string(job);
  }
}

// Wherever they stand: what a key says of others holds unless they are given.
TEST(JobTextTest, AutocastAndOptimizerSayOthersThatAreNotGiven) {
  const Job job = parse_job("gpt2:autocast=bf16");
  EXPECT_EQ(job.precision.compute, schedule::DType::F32);
  EXPECT_EQ(job.precision.gradient, schedule::DType::F32);
  EXPECT_EQ(job.precision.master_bytes, 0);
  EXPECT_EQ(job.precision.product(), schedule::DType::BF16);
  EXPECT_EQ(to_string(job), "gpt2:gbs=1,autocast=bf16");
  EXPECT_EQ(parse_job("gpt2:reduce=bf16,autocast=f16").precision.reduce, schedule::DType::BF16);
  EXPECT_EQ(parse_job("gpt2:states=8,optimizer=sgd").precision.state_bytes, 8);
}

// What is said in vain: the same Program and decisions with it and without.
TEST(JobTextTest, OptionsWithoutEffectAreAsTheyAreByThemselves) {
  struct Said {
    std::string with, without;
  };
  // Of a model of four layers.
  for (const Said& one : std::vector<Said>{
           {"dp=2,sp=no,async_tp=yes,exchange=ring,imbalance=2", "dp=2"},
           {"dp=2,prefetch=3,reshard=no,overlap_params=no", "dp=2"},
           {"dp_shard=2,bucket=1MiB,overlap_grads=no,overlap_params=no", "dp_shard=2"},
           {"dp=2,zero=3", "dp_shard=2"},
           {"dp=2,wrap=always", "dp=2"},
           {"tp=2,zero=3,products=fp8", "tp=2,products=fp8"},
           {"pp=2,layers=2/2", "pp=2"},
           {"dp_shard=2,zero=1", "dp=2,zero=1"},
           {"dp=2,recompute_layers=3", "dp=2"},
           {"dp=2,recompute=full,recompute_layers=4", "dp=2,recompute=full"},
           {"pp=2,vp=2,recompute=full,recompute_layers=1", "pp=2,vp=2,recompute=full"},
           {"dp=2,overlap_grads=no,bucket=1MiB", "dp=2,overlap_grads=no"}}) {
    const Job with = parse_job(testing::kShortLlama + ":" + one.with);
    const Job without = parse_job(testing::kShortLlama + ":" + one.without);
    EXPECT_NE(with, without);
    EXPECT_EQ(in_effect(with), in_effect(without)) << one.with << " " << to_string(in_effect(with));
    EXPECT_EQ(in_effect(without), without) << one.without;
    schedule::Program program = program_of(with);
    program.name = program_of(without).name;
    EXPECT_TRUE(program == program_of(without)) << one.with;
    EXPECT_EQ(policy_text(with), policy_text(without)) << one.with;
  }
  EXPECT_NE(in_effect(parse_job("llama3_8b:dp=2,tp=2,sp=no")), parse_job("llama3_8b:dp=2,tp=2"));
}

TEST(JobTextTest, DifferencesAreKeysWithTheirValues) {
  const auto found = differences(parse_job("llama3_8b:dp=2,bucket=1MiB"),
                                 parse_job("qwen3_8b:dp=2,seq=8192,zero=1"));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].key + found[0].here + found[0].there, "zero01");
  EXPECT_EQ(found[1].key + found[1].here + found[1].there, "bucket1048576B");
}

TEST(JobTextTest, ShardedRanksShardParameters) {
  EXPECT_EQ(parse_job("llama3_8b:dp_shard=8").zero, Zero::Parameters);
  EXPECT_EQ(parse_job("llama3_8b:dp=8").zero, Zero::Nothing);
  EXPECT_EQ(parse_job("llama3_8b:dp=8").batch.global, 8);
}

TEST(JobTextTest, RefusalsNameTheOption) {
  const auto expect = [](const std::string& text, const std::string& words) {
    EXPECT_NE(refusal(text).find(words), std::string::npos) << text << ": " << refusal(text);
  };
  expect("llama3_8b:tpp=2", "unknown option \"tpp\"; did you mean \"tp\"?");
  expect("gpt2:dtype=bf16,autocast=bf16", "autocast=bf16: expected dtype=f32, found dtype=bf16");
  expect("gpt2:master=4,autocast=bf16", "autocast=bf16: expected master=0, found master=4");
  expect("gpt2:amp=yes", "did you mean \"autocast\"?");
  expect("llama3_8b:fp8=yes", "unknown option \"fp8\"; did you mean \"products=fp8\"?");
  expect("llama3_8b:quantum=yes", "unknown option \"quantum\"; known: dp, dp_shard, tp,");
  expect("llama3_8b:tp=3", "tp=3 does not divide heads=32");
  expect("llama3_8b:tp=two", "tp: expected a whole number, found \"two\"");
  expect("llama3_8b:dp_shard=8,reshard=2",
         "reshard: " + std::string(dovetail::schedule::kReshardOverSome));
  expect("llama3_8b:tp=2,tp=4", "tp is given twice");
  expect("llama3_8b:dp=2,mbs=2,gbs=6", "does not divide gbs=6");
  expect("llama3_8b:ep=2,dp=2", "has no experts");
  expect("mixtral_8x7b:ep=3,dp=3", "ep=3 does not divide experts=8");
  expect("mixtral_8x7b:dp=2,dp_shard=2,ep=4", "ep x etp=4 does not divide dp_shard x cp x tp=2");
  expect("llama3_8b:vp=2", "need a pipeline");
  expect("llama3_8b:pp=64", "64 stages for 32 layers");
  expect("llama3_8b:pp=4,schedule=zbv", "schedule=zbv needs vp=2");
  expect("llama3_8b:schedule=zbv", "schedule=zbv: needs a pipeline, pp= of at least 2, found pp=1");
  expect("llama3_8b:dp=0", "expected dp from 1 to 1048576, found 0");
  expect("llama3_8b:gbs=1000000000",
         "expected micro-batches, gbs / (mbs x dp x dp_shard), from 1 to 65536, found 1000000000");
  expect("llama3_8b:states=4611686018427387904", "expected states from 0 to 64");
  expect("llama3_8b:pp=4,vp=2,schedule=zero-bubble,gbs=6", "pp=4 does not divide");
  expect("qwen3_0.6b:pp=4,vp=2,schedule=zbv", "tied weights");
  expect("llama3_8b:layers=32", "needs a pipeline");
  expect("llama3_8b:pp=2,layers=16/15",
         "expected 2 numbers that add up to 32, found 2 that add up to 31");
  expect("llama3_8b:pp=2,layers=32", "expected 2 numbers");
  expect("llama3_8b:pp=3,layers=16/0/16", "only the first and the last stage");
  expect("llama3_8b:pp=2,layers=16/x",
         "expected whole numbers such as 21/20/20/19 or 21/20x2/19, found \"");
  expect("llama3_8b:pp=2,layers=16x0", "expected whole numbers such as");
  expect("llama3_8b:pp=2,layers=16x99999999999", "expected whole numbers such as");
  expect("llama3_8b:kernels=slow", "expected fused, eager, transformers or layers");
  expect("llama3_8b:recompute=some", "expected none, selective, op or full");
  expect("llama3_8b:offload=yes", "not modelled");
  expect("llama3_8b:zero=4", "expected 0, 1, 2 or 3");
  expect("llama9_8b", "no such model");
  expect("llama3_8b:dp=1048576,dp_shard=1048576,tp=32", "expected a world from 1 to 1048576");
  expect("llama3_8b:seq=4194304,mbs=8", "expected mbs from 1 to 4");
}

}  // namespace
}  // namespace dovetail::jobs
