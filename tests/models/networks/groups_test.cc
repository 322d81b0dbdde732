// The mesh of ranks: who is in a group with whom.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/groups.h"

#include <gtest/gtest.h>

#include "models/networks/text.h"

namespace dovetail::jobs {
namespace {

std::vector<int> instance(const Groups& groups, const std::string& name, int rank) {
  for (const schedule::ProcessGroup& group : groups.all) {
    if (group.name != name) continue;
    std::vector<int> ranks;
    for (const Rank one : group.instance_of(Rank{rank})) ranks.push_back(one.value);
    return ranks;
  }
  return {};
}

TEST(GroupsTest, TensorParallelRanksAreNeighbours) {
  const Groups groups = groups_of(parse_job("llama3_8b:tp=2,cp=2,dp=2,pp=2,gbs=4"));
  EXPECT_EQ(instance(groups, "tp", 5), (std::vector{4, 5}));
  EXPECT_EQ(instance(groups, "cp", 5), (std::vector{5, 7}));
  EXPECT_EQ(instance(groups, "dp", 5), (std::vector{1, 3, 5, 7}));     // and context-parallel ranks
  EXPECT_EQ(instance(groups, "dp", 9), (std::vector{9, 11, 13, 15}));  // the second stage
}

TEST(GroupsTest, ExpertsLieOnRanksInARowAndAreCopiedFurtherOff) {
  const Groups groups = groups_of(parse_job("mixtral_8x7b:tp=2,ep=4,dp=4"));
  EXPECT_EQ(instance(groups, "ep", 5), (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(instance(groups, "edp", 5), (std::vector{1, 5}));
}

TEST(GroupsTest, HybridShardingHasShardsWithinAndReplicasAcross) {
  const Groups groups = groups_of(parse_job("llama3_8b:dp=2,dp_shard=4"));
  EXPECT_EQ(instance(groups, "dp", 5), (std::vector{4, 5, 6, 7}));
  EXPECT_EQ(instance(groups, "hsdp", 5), (std::vector{1, 5}));
  EXPECT_EQ(groups.of_dense.size(), 2U);
}

}  // namespace
}  // namespace dovetail::jobs
