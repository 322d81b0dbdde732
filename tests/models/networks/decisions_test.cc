// What a job decides, as policies say it; every text is one that parse_policy takes.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/decisions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/networks/program.h"
#include "models/networks/text.h"
#include "schedule/policies/fsdp.h"
#include "schedule/policies/policies.h"

namespace dovetail::jobs {
namespace {

TEST(JobDecisionsTest, StagesBucketsAndShards) {
  const auto text = [](const std::string& job) { return policy_text(parse_job(job)); };
  EXPECT_EQ(text("llama3_8b:dp=8"), "torch-ddp:cap=25MiB");
  EXPECT_EQ(text("llama3_8b:dp=8,gbs=32"), "torch-ddp:cap=25MiB,k=4");
  EXPECT_EQ(text("llama3_8b:dp=8,overlap_grads=no"), "no-overlap");
  EXPECT_EQ(text("llama3_8b:dp=8,zero=1"), "sharded:cap=160000000B,p=1,gather=next-forward");
  EXPECT_EQ(text("llama3_8b:dp_shard=8,prefetch=2,reshard=no"),
            "fsdp:forward=2,backward=2,reshard=no,mode=copy,wait=end-of-backward");
  // Divided gradients have no room for whole sums; in a pipeline the last micro-batch reduces.
  EXPECT_EQ(text("llama3_8b:dp_shard=8,gbs=32"),
            "fsdp:forward=1,backward=1,reshard=yes,mode=copy,wait=end-of-backward,sync=every,k=4");
  EXPECT_THAT(text("llama3_8b:dp=8,zero=2,gbs=32"), ::testing::HasSubstr(",sync=every,k=4"));
  EXPECT_THAT(text("llama3_8b:dp=8,zero=1,gbs=32"), ::testing::Not(::testing::HasSubstr("sync=")));
  EXPECT_THAT(text("llama3_8b:dp_shard=2,pp=4,gbs=16"),
              ::testing::Not(::testing::HasSubstr("sync=")));
  EXPECT_EQ(text("llama3_70b:tp=8,pp=4,dp=2,gbs=64,zero=1,async_tp=yes"),
            "pipeline:kind=1f1b,stages=4,k=32+"
            "sharded:cap=160000000B,p=1,gather=next-forward,collectives=async");
}

TEST(JobDecisionsTest, EveryTextIsAPolicy) {
  for (const std::string job :
       {"llama3_8b:dp=8", "llama3_8b:dp=8,gbs=32,overlap_grads=no",
        "llama3_8b:dp=8,zero=2,overlap_grads=no", "llama3_8b:dp_shard=8,gbs=16",
        "llama3_8b:dp=2,pp=4,vp=2,gbs=16", "llama3_8b:dp_shard=2,pp=4,gbs=16",
        "llama3_8b:tp=2,async_tp=yes,dp=2"}) {
    EXPECT_NO_THROW(schedule::parse_policy(policy_text(parse_job(job)))) << job;
  }
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
      const schedule::Schedule schedule =
          schedule::make_schedule(program, schedule::parse_policy(policy_text(job)));
      EXPECT_EQ(schedule::prefetch_of(program, schedule).forward, ahead) << text;
      EXPECT_EQ(schedule::prefetch_of(program, schedule).backward, ahead) << text;
    }
  }
}

}  // namespace
}  // namespace dovetail::jobs
