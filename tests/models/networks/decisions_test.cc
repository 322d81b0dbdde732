// What a job decides, as policies say it; parse_policy takes its text.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/decisions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "schedule/policies/fsdp.h"
#include "schedule/policies/policies.h"
#include "tests/support/drawn_jobs.h"
#include "tests/support/errors.h"

namespace dovetail::jobs {
namespace {

TEST(JobDecisionsTest, StagesBucketsAndShards) {
  const auto text = [](const std::string& job) { return policy_text(parse_job(job)); };
  EXPECT_EQ(text("llama3_8b:dp=8"), "torch-ddp:cap=25MiB");
  EXPECT_EQ(text("llama3_8b:dp=8,gbs=32"), "torch-ddp:cap=25MiB,k=4");
  // A rank that is alone has nobody to reduce with, unless its model is wrapped.
  EXPECT_EQ(text("llama3_8b:gbs=1"), "no-overlap");
  EXPECT_EQ(text("llama3_8b:gbs=1,wrap=always"), "torch-ddp:cap=25MiB");
  EXPECT_EQ(text("llama3_8b:gbs=1,zero=3,wrap=always"),
            "fsdp:forward=1,backward=1,reshard=yes,mode=copy,wait=end-of-backward");
  EXPECT_EQ(text("llama3_8b:dp=8,overlap_grads=no"), "no-overlap");
  EXPECT_EQ(text("llama3_8b:dp=8,zero=1"), "sharded:cap=160000000B,p=1,gather=next-forward");
  EXPECT_EQ(text("llama3_8b:dp_shard=8,prefetch=2,reshard=no"),
            "fsdp:forward=2,backward=2,reshard=no,mode=copy,wait=end-of-backward");
  // Divided gradients have no room for whole sums; in a pipeline the last micro-batch reduces.
  EXPECT_EQ(text("llama3_8b:dp_shard=8,gbs=32"),
            "fsdp:forward=1,backward=1,reshard=yes,mode=copy,wait=end-of-backward,sync=every,k=4");
  EXPECT_THAT(text("llama3_8b:dp=8,zero=2,gbs=32"), ::testing::HasSubstr(",sync=every,k=4"));
  EXPECT_THAT(text("llama3_8b:dp_shard=8,gbs=32,sync_each=no"),
              ::testing::Not(::testing::HasSubstr("sync=every")));
  EXPECT_THAT(text("llama3_8b:dp=8,zero=1,gbs=32"), ::testing::Not(::testing::HasSubstr("sync=")));
  EXPECT_THAT(text("llama3_8b:dp_shard=2,pp=4,gbs=16"),
              ::testing::Not(::testing::HasSubstr("sync=")));
  EXPECT_EQ(text("llama3_70b:tp=8,pp=4,dp=2,gbs=64,zero=1,async_tp=yes"),
            "pipeline:kind=1f1b,stages=4,k=32+"
            "sharded:cap=160000000B,p=1,gather=next-forward,collectives=async");
}

// PyTorch 2.15, 2 x 2 Gloo ranks: an all-gather a layer and micro-batch each way, the embedding's backward too, whose gradient needs no
// weights; without freeing, one a step. The reduce-scatters of a stage come behind its last backward.
TEST(JobDecisionsTest, Fsdp2GathersTheEmbeddingForItsBackward) {
  using Readers = std::vector<schedule::GatherFor>;
  const auto embedding = [](const std::string& text) {
    const Job job = parse_job("llama3_8b:dp_shard=2,as=fsdp," + text);
    const schedule::Program program = program_of(job);
    const schedule::Schedule planned = schedule::apply_policy(program, policy_of(job)).schedule;
    Readers readers;
    for (const schedule::ParameterGather& gather : planned.gathers) {
      const auto bucket = std::ranges::find(planned.buckets, gather.bucket, &schedule::Bucket::id);
      if (bucket == planned.buckets.end()) continue;  // a frozen block
      const TensorId gradient = bucket->gradients.front().tensor;
      if (program.tensor(gradient).name.starts_with("model.embed_tokens"))
        readers.push_back(gather.readers);
    }
    return readers;
  };
  using enum schedule::GatherFor;
  EXPECT_EQ(embedding("gbs=2"), (Readers{Forward, Backward}));
  EXPECT_EQ(embedding("gbs=2,reshard=no"), Readers{ForwardAndBackward});
  EXPECT_EQ(embedding("pp=2,gbs=8,reshard=no"), Readers{ForwardAndBackward});
  EXPECT_EQ(embedding("gbs=2,lora=16"), Readers{});  // frozen: in no bucket of gradients
}

TEST(JobDecisionsTest, PyTorchsPipelinesReduceBehindTheLastBackward) {
  const auto text = [](const std::string& job) { return policy_text(parse_job(job)); };
  EXPECT_THAT(text("llama3_8b:dp_shard=2,pp=4,gbs=16,as=fsdp"), ::testing::HasSubstr("batch=34"));
  EXPECT_THAT(text("llama3_8b:dp_shard=8,gbs=16,as=fsdp"),
              ::testing::Not(::testing::HasSubstr("batch=")));
}

TEST(JobDecisionsTest, ABucketThatSomebodySizedIsPrintedInBytes) {
  EXPECT_EQ(policy_text(parse_job("llama3_8b:dp=8,bucket=25MiB")), "torch-ddp:cap=26214400B");
  EXPECT_EQ(policy_text(parse_job("llama3_8b:dp=8,as=megatron")),
            "threshold:cap=160000000B,wait=end-of-backward");
  EXPECT_EQ(policy_text(parse_job("llama3_8b:dp=8,zero=1,bucket=1MiB,overlap_grads=no,"
                                  "overlap_params=no")),
            "sharded:cap=1048576B,p=1,gather=after-update,overlap=no");
}

TEST(JobDecisionsTest, TheTextOfADrawnJobIsReadBackAsItsPolicy) {
  Random random(37);
  std::vector<testing::Drawn> keys = testing::kAnyKey;
  keys.push_back({"as", {"torch", "megatron"}});
  std::set<std::string> names;
  int read = 0;
  while (read < 400) {
    const std::optional<Job> job = testing::drawn_job(random, {"llama3_8b", "mixtral_8x7b"}, keys);
    if (!job) continue;
    ++read;
    const schedule::Policy policy = policy_of(*job);
    const schedule::Policy typed = schedule::parse_policy(policy_text(*job));
    ASSERT_EQ(typed, policy) << to_string(*job);
    ASSERT_EQ(schedule::to_string(typed), schedule::to_string(policy)) << to_string(*job);
    for (const std::string& term : policy.terms) names.insert(term);
  }
  EXPECT_EQ(names, (std::set<std::string>{"fsdp", "no-overlap", "pipeline", "sharded", "threshold",
                                          "torch-ddp"}));
}

TEST(JobDecisionsTest, AnotherPolicyKeepsTheJobsStagesAndMicroBatches) {
  const auto text = [](const std::string& job, const std::string& given) {
    return schedule::to_string(policy_of(parse_job(job), given));
  };
  const std::string staged = "llama3_8b:dp=2,pp=2,gbs=16";
  EXPECT_EQ(text(staged, "torch-ddp"),
            "pipeline:k=8,kind=1f1b,stages=2+torch-ddp:cap=25MiB,first=1MiB");
  EXPECT_EQ(text(staged, "fsdp+streams=2"),
            "pipeline:k=8,kind=1f1b,stages=2,streams=2+fsdp:blocks=layer,forward=1,backward=1");
  EXPECT_EQ(text(staged, "pipeline:stages=4"), "pipeline:cap=25MiB,kind=1f1b,stages=4");
  const std::string merged = "llama3_8b:dp=2,tp=2,gbs=8,reduce=bf16,async_tp=yes";
  for (const std::string given : {"sharded", "sharded:k=4"}) {
    EXPECT_EQ(text(merged, given), "sharded:cap=100MiB,k=4,sums=bf16,p=2,collectives=async");
  }
  EXPECT_EQ(text(merged, "sharded:collectives=inline"), "sharded:cap=100MiB,k=4,sums=bf16,p=2");
}

TEST(JobDecisionsTest, AnotherPolicyIsRefusedWhereItContradictsTheJob) {
  const auto refusal = [](const std::string& job, const std::string& given) {
    return testing::error_of([&] { policy_of(parse_job(job), given); });
  };
  EXPECT_EQ(refusal("llama3_8b:dp=2,gbs=8", "torch-ddp:k=2"),
            "policy torch-ddp:k=2: the job has 4 micro-batches by gbs= and mbs=, not k=2");
  EXPECT_EQ(refusal("llama3_8b:dp=2,pp=2,gbs=8", "sharded:k=4"),
            "policy \"sharded:k=4\": pipeline and sharded both decide accumulation");
  EXPECT_EQ(refusal("llama3_8b:dp=2,pp=2,gbs=8", "exact"),
            "policy \"exact\": a grouping by times with a pipeline: it follows one gradient-ready "
            "order, and each stage has its own");
}

// The head's op also reads the last norm, and of two stages each has its own order.
TEST(JobDecisionsTest, WhatIsGatheredAheadIsThatOfAStage) {
  const std::string tiny =
      std::string(DOVETAIL_SOURCE_DIR) + "/tests/models/networks/data/tiny_llama/config.json";
  for (const std::string layout : {":dp_shard=4,gbs=16", ":dp_shard=2,pp=2,gbs=16"}) {
    const std::string text = tiny + layout;
    for (const std::int32_t ahead : {1, 2}) {
      const Job job = parse_job(text + ",prefetch=" + std::to_string(ahead));
      const schedule::Program program = program_of(job);
      const schedule::Schedule schedule = schedule::make_schedule(program, policy_of(job));
      EXPECT_EQ(schedule::prefetch_of(program, schedule).forward, ahead) << text;
      EXPECT_EQ(schedule::prefetch_of(program, schedule).backward, ahead) << text;
    }
  }
}

}  // namespace
}  // namespace dovetail::jobs
