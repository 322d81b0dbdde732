// A measured step asked for on other ranks (--layout): which groups and reductions its gradients get, by hand.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/data_parallel.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/units.h"

namespace dovetail::schedule {
namespace {

// Forward, then a gradient after each of two backward ops, on two ranks of which each is late once.
Program measured_on_two() {
  Program program;
  program.world_size = 2;
  program.groups = {{.id = GroupId{3}, .name = "world", .ranks = {Rank{0}, Rank{1}}}};
  const auto op = [&](const std::string& name, Phase phase, const std::vector<double>& us) {
    TimedWork work;
    for (const double time : us) work.by_rank.push_back(from_us(time));
    program.ops.push_back({.id = OpId{static_cast<std::int32_t>(program.ops.size())},
                           .name = name,
                           .phase = phase,
                           .work = std::move(work),
                           .reads = {},
                           .writes = {}});
    if (phase != Phase::Backward) return;
    const TensorId gradient{static_cast<std::int32_t>(program.tensors.size())};
    program.tensors.push_back(
        {.id = gradient, .name = name + ".grad", .kind = TensorKind::Gradient, .shape = {256}});
    program.ops.back().writes = {gradient};
    program.reductions.push_back({.gradient = gradient, .group = GroupId{3}});
  };
  op("forward", Phase::Forward, {10});
  op("b", Phase::Backward, {20, 26});
  op("a", Phase::Backward, {14, 6});
  return program;
}

std::vector<std::int32_t> ranks_of(const ProcessGroup& group) {
  std::vector<std::int32_t> ranks;
  for (const Rank rank : group.ranks) ranks.push_back(rank.value);
  return ranks;
}

TEST(DataParallelTest, OneDegreeIsOneGroupOfAllRanks) {
  for (const DataParallel degrees : {DataParallel{.dp = 4}, DataParallel{.dp_shard = 4}}) {
    const Program program = lay_out(measured_on_two(), degrees);
    EXPECT_EQ(problems(program), std::vector<std::string>{});
    EXPECT_EQ(program.world_size, 4);
    ASSERT_EQ(program.groups.size(), 1U);
    EXPECT_EQ(ranks_of(program.groups[0]), (std::vector<std::int32_t>{0, 1, 2, 3}));
    EXPECT_EQ(program.reductions.size(), 2U);
  }
}

// dp_shard = 4 innermost: replicas of a shard lie 4 apart.
TEST(DataParallelTest, BothDegreesAreShardsAndTheirReplicas) {
  const Program program = lay_out(measured_on_two(), {.dp = 2, .dp_shard = 4});
  EXPECT_EQ(problems(program), std::vector<std::string>{});
  ASSERT_EQ(program.groups.size(), 2U);
  EXPECT_EQ(program.groups[0].size(), 4);
  EXPECT_EQ(ranks_of(program.groups[0]), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(program.groups[1].size(), 2);
  EXPECT_EQ(ranks_of(program.groups[1]), (std::vector<std::int32_t>{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(program.reductions.size(), 4U);
  EXPECT_EQ(reduced_gradients(program).count, 2U);
  EXPECT_EQ(reduced_gradients(program).bytes, kib(2));
}

// Rank 0 ends b at 30 and a at 44, rank 1 at 36 and 42: on the latest they end at 36 and 44.
TEST(DataParallelTest, AnOpEndsWhenItHasEndedOnTheLatestRank) {
  const Program program = lay_out(measured_on_two(), {.dp = 16});
  std::vector<Duration> times;
  for (const Op& op : program.ops) {
    const auto& work = std::get<TimedWork>(op.work);
    ASSERT_EQ(work.by_rank.size(), 1U);
    times.push_back(work.by_rank[0]);
  }
  EXPECT_EQ(times, (std::vector<Duration>{from_us(10), from_us(26), from_us(8)}));
}

TEST(DataParallelTest, OnTheSameRanksTheirTimesStay) {
  const Program program = lay_out(measured_on_two(), {.dp = 2});
  EXPECT_EQ(program.ops, measured_on_two().ops);
}

TEST(DataParallelTest, WhatIsDividedAlreadyIsRefusedWithTheReason) {
  Program pipeline = measured_on_two();
  pipeline.stages = 2;
  EXPECT_EQ(layout_refusal(pipeline), "it is a pipeline");
  Program talks = measured_on_two();
  talks.ops[1].work = CollectiveWork{.group = GroupId{3}, .bytes = Bytes(4)};
  EXPECT_EQ(layout_refusal(talks), "op b communicates");
  Program part = measured_on_two();
  part.groups[0].ranks = {Rank{0}};
  EXPECT_EQ(layout_refusal(part), "b.grad is not reduced over all ranks");
  EXPECT_EQ(layout_refusal(lay_out(measured_on_two(), {.dp = 2, .dp_shard = 2})),
            "b.grad is not reduced over all ranks");
  EXPECT_EQ(layout_refusal(measured_on_two()), "");
}

TEST(DataParallelTest, DegreesAreWrittenAsTheyAreRead) {
  EXPECT_EQ(to_string(DataParallel{.dp = 16}), "dp=16");
  EXPECT_EQ(to_string(DataParallel{.dp = 2, .dp_shard = 8}), "dp_shard=8,dp=2");
  EXPECT_EQ(to_string(DataParallel{.dp_shard = 8}), "dp_shard=8");
}

}  // namespace
}  // namespace dovetail::schedule
