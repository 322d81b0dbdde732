// FSDP2's groups, in recorded traces whose programs are known (traces/README.md, scripts/campaigns/gloo_traces.py) and made ones.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/recordings/kineto/made_events.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::imports {
namespace {

using testing::MadeEvents;

std::optional<Sharding> sharding_of(const RankTrace& rank) {
  return sharding_of(rank.trace, rank.line);
}

// A root with the embedding, and six blocks that are gathered again for backward; bf16 gathered, f32 reduced.
TEST(ShardingTest, GroupsOfAnH100sStepAreThoseOfItsModel) {
  for (const RankTrace& rank : testing::h100_job("fsdp2").ranks) {
    const auto sharding = sharding_of(rank);
    ASSERT_TRUE(sharding.has_value());
    ASSERT_EQ(sharding->groups.size(), 7U);
    const ShardedGroup& root = sharding->groups.front();
    EXPECT_EQ(root.name, "");
    EXPECT_EQ(root.forward, 1);
    EXPECT_EQ(root.backward, 0);
    const ShardedGroup& block = sharding->groups[6];
    EXPECT_EQ(block.name, "blocks.5");
    EXPECT_EQ(block.elements, 3'152'384);
    EXPECT_EQ(block.gathered, Bytes(3'152'384 * 2));
    EXPECT_EQ(block.gathered_as, "BFloat16");
    EXPECT_EQ(block.reduced, Bytes(3'152'384 * 4));
    EXPECT_EQ(block.backward, 1);
    EXPECT_EQ(block.reductions, 1);
    EXPECT_EQ(block.all_reduces, 0);
    EXPECT_TRUE(sharding->gathers_again());
    EXPECT_EQ(sharding->kept_without(), block.gathered * 6);
    EXPECT_EQ(sharding->forward_ahead, 0);   // each group's own hook
    EXPECT_EQ(sharding->backward_ahead, 1);  // FSDP2's default
    EXPECT_EQ(sharding->shards, 2);
    EXPECT_EQ(sharding->replicas, 1);
  }
}

// Four layers of 128 x 128 with a bias on two ranks, and on two times two.
TEST(ShardingTest, GlooRanksHaveTheirGroupsToo) {
  for (const std::string way : {"fsdp2", "hsdp"}) {
    const auto sharding = sharding_of(testing::gloo_job(way, way == "hsdp" ? 4 : 2).ranks[0]);
    ASSERT_TRUE(sharding.has_value()) << way;
    ASSERT_EQ(sharding->groups.size(), 4U) << way;
    for (const ShardedGroup& group : sharding->groups) {
      EXPECT_EQ(group.elements, 128 * 128 + 128) << way;
      EXPECT_EQ(group.gathered, Bytes(66048)) << way;
      EXPECT_EQ(group.reductions, 1) << way;
      EXPECT_EQ(group.all_reduces, way == "hsdp" ? 1 : 0) << way;
    }
    EXPECT_EQ(sharding->shards, 2) << way;
  }
}

// reshard_after_forward=2 on four ranks: a group's half stays with each of two, 33,024 bytes a layer. A Gloo trace does not say over how
// many replicas an all-reduce goes.
TEST(ShardingTest, GathersForBackwardMayGoOverFewerRanks) {
  const auto two = sharding_of(testing::gloo_job("fsdp2_two", 1).ranks[0]);
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->shards, 4);
  EXPECT_EQ(two->resharded_to(), 2);
  EXPECT_EQ(two->groups[0].gathered, Bytes(66'048));
  EXPECT_EQ(two->kept_without(), Bytes(4 * 33'024));
  const auto hsdp = sharding_of(testing::gloo_job("hsdp", 4).ranks[0]);
  EXPECT_EQ(hsdp->resharded_to(), 0);
  EXPECT_EQ(hsdp->kept_without(), Bytes(4 * 66'048));
  EXPECT_EQ(hsdp->replicas, 0);
}

// What is gathered as bf16 and reduced as f32 is whole all the same.
TEST(ShardingTest, MixedPrecisionGathersAreWhole) {
  const auto sharding = sharding_of(testing::gloo_job("fsdp2_bf16", 1).ranks[0]);
  ASSERT_TRUE(sharding.has_value());
  EXPECT_EQ(sharding->shards, 2);
  EXPECT_EQ(sharding->groups[0].gathered, Bytes(16'512 * 2));
  EXPECT_EQ(sharding->groups[0].reduced, Bytes(16'512 * 4));
}

TEST(ShardingTest, OtherTracesHaveNone) {
  EXPECT_FALSE(sharding_of(testing::resnet50().ranks[0]).has_value());
  EXPECT_FALSE(sharding_of(testing::h100_job("ddp").ranks[0]).has_value());
}

// Three groups, gathered once each; with set_modules_to_forward_prefetch the hook of a group gathers the one or the two behind it.
MadeEvents prefetching(int ahead) {
  MadeEvents events;
  constexpr int kGroups = 4;
  for (int n = 0; n < 2; ++n) {
    const double at = 1000 + n * 10'000;
    events.step(n + 3, at, 10'000);
    for (int g = 0; g < kGroups; ++g) {
      const double begin = at + 100 + g * 1000;
      events.event("user_annotation", "FSDP::pre_forward (layers." + std::to_string(g) + ")", 1,
                   begin, 500);
      const int first = g == 0 ? 0 : g + ahead;
      const int last = g + ahead;
      for (int of = first; of <= std::min(last, kGroups - 1); ++of) {
        const double gather = begin + 10 + (of - first) * 100;
        events.event("user_annotation", "FSDP::all_gather (layers." + std::to_string(of) + ")", 1,
                     gather, 90);
        events.op("c10d::_allgather_base_", gather + 10, 60);
        events.kernel(
            "ncclDevKernel_AllGather_RING_LL", 20, gather + 100, 50, events.launch(1, gather + 20),
            R"("Collective name":"_allgather_base","In msg nelems":1024,"Out msg nelems":8192,"Group size":8,"dtype":"BFloat16")");
      }
      events.kernel("gemm", 7, begin + 600, 300, events.launch(1, begin + 550));
    }
  }
  return events;
}

TEST(ShardingTest, ExplicitPrefetchIsTold) {
  for (const int ahead : {0, 1, 2}) {
    const auto sharding = sharding_of(testing::job_of(prefetching(ahead).text()).ranks[0]);
    ASSERT_TRUE(sharding.has_value()) << ahead;
    EXPECT_EQ(sharding->forward_ahead, ahead);
    EXPECT_FALSE(sharding->backward_ahead.has_value());
    EXPECT_FALSE(sharding->gathers_again());
    EXPECT_EQ(sharding->kept_without(), Bytes(0));
    EXPECT_EQ(sharding->groups.size(), 4U);
  }
}

}  // namespace
}  // namespace dovetail::imports
