// Traces of FSDP2, HSDP, tensor and pipeline parallelism on Gloo, held to what scripts/campaigns/gloo_traces.py is known to do.
//
// Layers have 128 x 128 elements and a bias, 16,512 of f32: 66,048 bytes, half of which each of two ranks holds. Batches are 8 x 128,
// 4,096 bytes.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "recordings/timeline/rank_set.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::imports {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Pair;

// How many collectives of a kind and size a step has.
using Counts = std::map<std::pair<CollectiveKind, std::int64_t>, int>;

Counts counts_of(const RankTrace& rank, const TracedStep& step) {
  Counts counts;
  for (const TracedCollective& one : rank.line.collectives) {
    if (std::ranges::find(step.works, one.work) == step.works.end()) continue;
    ++counts[{one.kind, one.bytes.value_or(Bytes(-1)).count()}];
  }
  return counts;
}

std::string text_of(const Counts& counts) {
  std::string text;
  for (const auto& [what, count] : counts) {
    text += std::to_string(static_cast<int>(what.first)) + " of " + std::to_string(what.second) +
            " bytes: " + std::to_string(count) + "; ";
  }
  return text;
}

template <class Matcher>
void expect_in_every_step(const std::string& way, std::size_t ranks, const Matcher& expected) {
  const JobTrace job = testing::gloo_job(way, ranks);
  ASSERT_EQ(job.ranks.size(), ranks);
  EXPECT_EQ(job.world_size().value_or(0), static_cast<std::int64_t>(ranks));
  for (const RankTrace& rank : job.ranks) {
    ASSERT_EQ(rank.line.steps.size(), 2U) << way << " rank " << rank.rank;
    EXPECT_TRUE(rank.line.on_cpu);
    for (const TracedStep& step : rank.line.steps) {
      const Counts counts = counts_of(rank, step);
      EXPECT_THAT(counts, expected) << way << " rank " << rank.rank << ": " << text_of(counts);
    }
  }
}

// Four layers, gathered for forward and again for backward; their gradients leave in four all-reduces of whole layers, as Gloo
// has no reduce-scatter of its own.
TEST(GlooTracesTest, Fsdp2GathersEachLayerTwiceAndReducesItOnce) {
  expect_in_every_step("fsdp2", 2,
                       AllOf(Contains(Pair(std::pair(CollectiveKind::AllGather, 66048 / 2), 8)),
                             Contains(Pair(std::pair(CollectiveKind::AllReduce, 66048), 4))));
}

// The same, and each of the four sums of shards goes over the two replicas.
TEST(GlooTracesTest, HsdpAlsoReducesEachShardAmongReplicas) {
  expect_in_every_step("hsdp", 4,
                       AllOf(Contains(Pair(std::pair(CollectiveKind::AllGather, 66048 / 2), 8)),
                             Contains(Pair(std::pair(CollectiveKind::AllReduce, 66048), 4)),
                             Contains(Pair(std::pair(CollectiveKind::AllReduce, 66048 / 2), 4))));
}

// Activations once in forward and their gradient once in backward, 8 x 128; among the replicas halves of two weights, half a bias
// and a whole one.
TEST(GlooTracesTest, TensorParallelLayersReduceActivationsAndReplicasGradients) {
  const CollectiveKind kind = CollectiveKind::AllReduce;
  expect_in_every_step("tp", 4,
                       AllOf(Contains(Pair(std::pair(kind, 4096), 2)),
                             Contains(Pair(std::pair(kind, 4 * 128 * 64), 2)),
                             Contains(Pair(std::pair(kind, 4 * 64), 1)),
                             Contains(Pair(std::pair(kind, 4 * 128), 1))));
}

// Four micro-batches of activations to the second stage, and their gradients back.
TEST(GlooTracesTest, APipelineSendsEachMicroBatchForthAndBack) {
  const JobTrace job = testing::gloo_job("pp", 2);
  for (const RankTrace& rank : job.ranks) {
    for (const TracedStep& step : rank.line.steps) {
      int messages = 0;
      for (const auto& [what, count] : counts_of(rank, step)) {
        if (what.second == 4096) messages += count;
      }
      EXPECT_EQ(messages, 8) << rank.rank << ": " << text_of(counts_of(rank, step));
    }
  }
}

}  // namespace
}  // namespace dovetail::imports
