// Links that are fitted to tables: what made the tables is found again, and worlds that the fit did not see are met.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/topology_fit.h"

#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dovetail::models {
namespace {

using dovetail::testing::error_of;
using schedule::Collective;
using ::testing::HasSubstr;

Topology known() {
  return {.gpu = NcclGpu::Hopper,
          .levels = {
              {.link = "nvlink", .ranks = 4, .rate = BytesPerSecond(3.4e11), .hop = from_us(3.4)},
              {.link = "network", .rate = BytesPerSecond(2.4e10), .hop = from_us(40)}}};
}

// What the known links say of a world, times `factor` of the size.
template <typename Factor>
CollectiveSeries world(std::int64_t nodes, Factor factor) {
  const CollectiveKey key{Collective::AllReduce, 4 * nodes, nodes};
  const CollectiveTable model = modelled(known(), key).time;
  std::vector<CollectivePoint> points;
  for (Bytes bytes = kib(1); bytes <= gib(8); bytes = bytes * 2) {
    const double us = to_us(model.time(bytes).isolated) * factor(bytes);
    points.push_back({.bytes = bytes, .isolated = from_us(us)});
  }
  return {.collective = key.collective, .ranks = key.ranks, .nodes = nodes, .times = points};
}

TEST(TopologyFitTest, FindsTheLinksThatMadeTheTables) {
  const auto plain = [](Bytes) { return 1.0; };
  const Topology found = fit_topology(
      {world(1, plain), world(2, plain), world(4, plain), world(16, plain)}, {.node_ranks = 4});
  EXPECT_NEAR(found.node().rate.count() / 3.4e11, 1, 0.01);
  EXPECT_NEAR(found.levels.back().rate.count() / 2.4e10, 1, 0.02);
  EXPECT_NEAR(to_us(found.levels.back().hop), 40, 2);
  EXPECT_FALSE(found.node().all_reduce_rate);
}

TEST(TopologyFitTest, WhatTheModelMissesInSmallWorldsIsForgivenInLargeOnes) {
  // Half as long again, and three times as long around 1 MiB, in every world.
  const auto odd = [](Bytes bytes) {
    return std::abs(std::log2(static_cast<double>(bytes.count())) - 20) < 1.5 ? 3 : 1.5;
  };
  const std::vector<CollectiveSeries> all = {world(1, odd),  world(4, odd),  world(8, odd),
                                             world(16, odd), world(64, odd), world(512, odd)};
  const WorldScores scores = score_worlds(all, {.fit_ranks = 64, .links = {.node_ranks = 4}});
  ASSERT_EQ(scores.worlds.size(), 2U);
  EXPECT_EQ(scores.worlds.begin()->first, (CollectiveKey{Collective::AllReduce, 256, 64}));
  EXPECT_EQ(scores.worlds.begin()->second.points, 24U);
  EXPECT_LT(scores.all.median_absolute, 0.03);
  EXPECT_LT(scores.all.p95_absolute, 0.15);
  // 1 KiB to 8 GiB, by 16: from 64 KiB on there is a row, below it one from 256 bytes on.
  EXPECT_EQ(scores.sizes.size(), 7U);
}

TEST(TopologyFitTest, SaysWhichTablesAreMissing) {
  const auto plain = [](Bytes) { return 1.0; };
  const FitLinks links{.node_ranks = 4};
  EXPECT_THAT(error_of([&] { fit_topology({world(1, plain)}, links); }),
              HasSubstr("no table over several nodes, of 4 ranks each"));
  EXPECT_THAT(error_of([&] { score_worlds({world(4, plain)}, {.fit_ranks = 64, .links = links}); }),
              HasSubstr("no table over more than 64 ranks, to predict"));
  EXPECT_THAT(error_of([&] { score_worlds({world(4, plain)}, {.fit_ranks = 8, .links = links}); }),
              HasSubstr("no table over up to 8 ranks, to fit to"));
}

}  // namespace
}  // namespace dovetail::models
