// What a measured table says of its machine: half of its bandwidth, dips, and how it stands beside a shipped one.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/clusters/cluster_difference.h"

namespace dovetail::imports {
namespace {

using models::CollectivePoint;
using models::CollectiveSeries;
using schedule::Collective;

// An all-reduce over 8 ranks whose algorithm bandwidths are these, in GB/s, from 1 MiB on, doubling.
CollectiveSeries series_of(const std::vector<double>& gb_s) {
  std::vector<CollectivePoint> points;
  Bytes bytes = mib(1);
  for (const double rate : gb_s) {
    const double ns = static_cast<double>(bytes.count()) / rate;
    points.push_back({.bytes = bytes, .isolated = Duration(std::llround(ns))});
    bytes = Bytes(bytes.count() * 2);
  }
  CollectiveSeries series;
  series.collective = Collective::AllReduce;
  series.ranks = 8;
  series.nodes = 1;
  series.times = std::move(points);
  return series;
}

// Half of 100 GB/s is met exactly at 4 MiB; at 40 and 60 GB/s it lies half-way between 2 and 4 MiB, on a scale of logarithms.
TEST(VerdictTest, HalfOfThePeakIsFoundBetweenSizes) {
  EXPECT_EQ(half_bandwidth(series_of({10, 25, 50, 100, 100}))->bytes, mib(4));
  const HalfBandwidth between = *half_bandwidth(series_of({10, 40, 60, 100, 100}));
  EXPECT_NEAR(static_cast<double>(between.bytes.count()) / static_cast<double>(mib(1).count()),
              2.83, 0.01);
  EXPECT_FALSE(between.still_rises);
  EXPECT_FALSE(between.is_below);
}

TEST(VerdictTest, APeakThatIsNotReachedAndAStartAboveHalfAreSaid) {
  EXPECT_TRUE(half_bandwidth(series_of({10, 20, 40}))->still_rises);
  const CollectiveSeries fast = series_of({60, 90, 100});
  EXPECT_TRUE(half_bandwidth(fast)->is_below);
  EXPECT_THAT(fusing_in_words(fast), ::testing::HasSubstr("at this size, the smallest measured"));
  EXPECT_THAT(fusing_in_words(series_of({10, 25, 50, 100, 100})),
              ::testing::StartsWith("fuse above 4 MiB on this machine"));
  EXPECT_EQ(half_bandwidth(series_of({50})), std::nullopt);
}

// Bus bandwidth is 2 * 7 / 8 of algorithm bandwidth; 80 after 100 is 0.8 of what was reached: a dip; 90 is none.
TEST(VerdictTest, DipsAlongSizesAreMarked) {
  const std::vector<SizeVerdict> sizes = verdicts(series_of({50, 100, 80, 90, 110}), nullptr);
  EXPECT_NEAR(sizes[1].bus_gb_s, 175, 0.01);
  EXPECT_EQ(sizes[1].words, "");
  EXPECT_EQ(sizes[2].words, "dip");
  EXPECT_EQ(sizes[3].words, "");
}

TEST(VerdictTest, SizesStandBesideAnotherMachine) {
  models::Cluster other;
  other.name = "other";
  other.ranks = 8;
  other.collectives = {series_of({100, 100, 100})};
  const std::vector<SizeVerdict> sizes = verdicts(series_of({50, 95, 130}), &other);
  EXPECT_EQ(sizes[0].beside, Beside::Slower);
  EXPECT_EQ(sizes[0].words, "slower: -50 %");
  EXPECT_EQ(sizes[1].beside, Beside::Alike);
  EXPECT_EQ(sizes[1].words, "-5 %");
  EXPECT_EQ(sizes[2].words, "faster: +30 %");
}

// A machine whose times are modelled is no yardstick.
TEST(VerdictTest, WhatWasNotMeasuredIsNoVerdict) {
  const std::string clusters = std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters";
  CollectiveSeries series = series_of({50, 100});
  series.ranks = 16;
  series.nodes = 2;
  const models::Cluster modelled = models::load_cluster("h100x16", clusters);
  for (const SizeVerdict& size : verdicts(series, &modelled)) {
    EXPECT_TRUE(size.other_gb_s);
    EXPECT_EQ(size.beside, Beside::Unknown);
  }
}

// Half of what eight interfaces of 48 GB/s carry, which the node's own table does not excuse.
TEST(VerdictTest, ALogWithHalfOfItsRailsIsJudgedByTheLinks) {
  const models::Cluster like =
      models::load_cluster("h100x64", std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters");
  const auto world = [](std::int64_t ranks, std::int64_t nodes, double bus_gb_s) {
    const double factor = schedule::bus_factor(Collective::AllReduce, ranks);
    std::vector<CollectivePoint> points;
    for (const Bytes bytes : {mib(1), mib(256)}) {
      const double ns = factor * static_cast<double>(bytes.count()) / bus_gb_s;
      points.push_back({.bytes = bytes, .isolated = Duration(std::llround(ns))});
    }
    return CollectiveSeries{
        .collective = Collective::AllReduce, .ranks = ranks, .nodes = nodes, .times = points};
  };
  const auto sick = line_verdict(world(64, 8, 188), like, {});
  ASSERT_TRUE(sick);
  EXPECT_TRUE(sick->is_sick());
  EXPECT_THAT(in_words(*sick), ::testing::StartsWith("188 of the 343 GB/s"));
  EXPECT_FALSE(line_verdict(world(64, 8, 320), like, {})->is_sick());
  const std::vector<CollectiveSeries> slow_node = {world(8, 1, 200)};
  EXPECT_FALSE(line_verdict(world(64, 8, 188), like, slow_node)->is_sick());
  EXPECT_FALSE(line_verdict(world(8, 1, 100), like, {}));
}

TEST(VerdictTest, TheShippedMachineThatHasTheTableIsTheOneBesideIt) {
  const std::string clusters = std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters";
  CollectiveSeries series = series_of({50, 100});
  series.ranks = 16;
  series.nodes = 2;
  EXPECT_EQ(shipped_like("NVIDIA H100 80GB HBM3", series, clusters)->name, "h100x16_tcpxo");
  EXPECT_EQ(shipped_like("NVIDIA A100-SXM4-80GB", series, clusters)->name, "a100x16_ib");
  series.nodes = 4;
  EXPECT_EQ(shipped_like("NVIDIA H100 80GB HBM3", series, clusters)->name, "h100x16");
}

TEST(VerdictTest, ShippedMachinesAreFoundByTheGpuThatALogNames) {
  const std::string clusters = std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters";
  const CollectiveSeries series = series_of({50, 100});
  EXPECT_EQ(shipped_like("NVIDIA H100 80GB HBM3", series, clusters)->name, "h100x8");
  EXPECT_EQ(shipped_like("Voodoo 2", series, clusters), std::nullopt);
  EXPECT_EQ(shipped_like("", series, clusters), std::nullopt);
}

TEST(ClusterDifferenceTest, RowsAreSizesThatBothCoverAndRatiosAreOfTheSecond) {
  models::Cluster first;
  first.name = "first";
  first.ranks = 8;
  first.collectives = {series_of({100, 100, 100})};
  models::Cluster second = first;
  second.collectives = {series_of({50, 50})};
  const std::vector<models::ClusterRow> rows = models::rows_of_both(first, second);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].bytes, mib(2));
  EXPECT_NEAR(rows[1].ratio(), 0.5, 1e-4);
  EXPECT_NEAR(rows[0].first_gb_s, 175, 0.01);
  second.collectives.front().ranks = 4;
  EXPECT_TRUE(models::rows_of_both(first, second).empty());
  EXPECT_THAT(models::only_in(first, second), ::testing::ElementsAre("all-reduce over 8 ranks"));
}

TEST(ClusterDifferenceTest, AMachineWithATopologyModelsWhatTheOtherHasMeasured) {
  const models::Cluster shipped =
      models::load_cluster("h100x64", std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters");
  models::Cluster mine;
  mine.name = "mine";
  mine.ranks = 64;
  mine.collectives = {series_of({50, 100})};
  mine.collectives.front().ranks = 64;
  mine.collectives.front().nodes = 8;
  const std::vector<models::ClusterRow> rows = models::rows_of_both(mine, shipped);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].ranks, 64);
  EXPECT_EQ(rows[0].modelled, models::Modelled::Second);
  EXPECT_TRUE(models::only_in(mine, shipped).empty());
}

}  // namespace
}  // namespace dovetail::imports
