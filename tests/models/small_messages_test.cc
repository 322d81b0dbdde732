// What a table says below its first size: every shipped table of GPUs is cut at 8 MiB, and the sizes that it had below
// are predicted; the errors are those that models/clusters/cluster.h states.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/cluster.h"

#include "tests/models/small_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::models {
namespace {

using schedule::Collective;
using Points = std::vector<CollectivePoint>;

double at(std::vector<double> values, double quantile) {
  std::ranges::sort(values);
  return values.at(static_cast<std::size_t>(quantile * static_cast<double>(values.size() - 1)));
}

// Relative errors below the cut, of the anchored shape and of the time of the first size that is left.
struct CutErrors {
  std::vector<double> shaped, flat;
};

void add_errors(const Cluster& shipped, const CollectiveSeries& series, Bytes cut,
                CutErrors& errors) {
  const auto& all = std::get<Points>(series.times);
  Points kept;
  std::ranges::copy_if(all, std::back_inserter(kept),
                       [cut](const CollectivePoint& point) { return point.bytes >= cut; });
  if (kept.size() < 2 || kept.size() == all.size()) return;
  Cluster cluster = shipped;
  cluster.topology.reset();  // only what the table itself shows
  cluster.collectives = {series};
  cluster.collectives.front().times = kept;
  const CollectiveTable table = collective_table(cluster, {series.collective, series.ranks});
  for (const CollectivePoint& point : all) {
    if (point.bytes >= cut) break;
    const auto error = [&](Duration time) {
      return std::abs(to_us(time) / to_us(point.isolated) - 1);
    };
    errors.shaped.push_back(error(table.time(point.bytes).isolated));
    errors.flat.push_back(error(kept.front().isolated));
  }
}

CutErrors errors_of(Bytes cut, bool several_nodes) {
  CutErrors errors;
  for (const std::string& name : cluster_names(kClusters)) {
    const Cluster cluster = load_cluster(name, kClusters);
    if (cluster.origin.starts_with("as ")) continue;  // the tables of another file
    for (const CollectiveSeries& series : cluster.collectives) {
      if (series.collective == Collective::AllToAll) continue;
      if ((series.nodes.value_or(1) > 1) == several_nodes) add_errors(cluster, series, cut, errors);
    }
  }
  return errors;
}

TEST(SmallMessagesTest, TablesThatBeginAt8MiBMeetSmallerSizesAsStated) {
  const CutErrors node = errors_of(mib(8), false);
  const CutErrors nodes = errors_of(mib(8), true);
  for (const auto& [name, errors] : {std::pair("node", node), std::pair("nodes", nodes)}) {
    std::cout << "one " << name << ": " << errors.shaped.size() << " sizes, median "
              << 100 * at(errors.shaped, 0.5) << " %, p90 " << 100 * at(errors.shaped, 0.9)
              << " %; flat " << 100 * at(errors.flat, 0.5) << " %\n";
  }
  EXPECT_GT(node.shaped.size(), 600U);
  EXPECT_NEAR(at(node.shaped, 0.5), 0.17, 0.01);
  EXPECT_NEAR(at(node.shaped, 0.9), 0.40, 0.01);
  EXPECT_NEAR(at(nodes.shaped, 0.5), 0.17, 0.02);
  EXPECT_NEAR(at(nodes.shaped, 0.9), 0.61, 0.03);
  EXPECT_GT(at(node.flat, 0.5), 3);
}

TEST(SmallMessagesTest, ATableGoesOnBelowWhereItBeganAndNeverFalls) {
  const Cluster tcpx = load_cluster("h100x16_tcpx", kClusters);
  const CollectiveTable table = collective_table(tcpx, {Collective::AllGather, 16});
  const auto& points = std::get<Points>(tcpx.collectives.front().times);
  EXPECT_EQ(table.time(points.front().bytes).isolated, points.front().isolated);
  EXPECT_LT(table.time(kib(4)).isolated, points.front().isolated / 5);
  for (Bytes bytes(1); bytes < points.front().bytes; bytes = bytes * 2) {
    EXPECT_LE(table.time(bytes).isolated, table.time(bytes * 2).isolated) << bytes;
  }
}

TEST(SmallMessagesTest, OnProcessorsTheSmallestSizeHolds) {
  Cluster cluster = load_cluster("h100x16_tcpx", kClusters);
  cluster.backend = BackendKind::Cpu;
  const auto& points = std::get<Points>(cluster.collectives.front().times);
  EXPECT_EQ(collective_table(cluster, {Collective::AllGather, 16}).time(kib(4)).isolated,
            points.front().isolated);
}

// ------------------------------------------------------------------------------------ anchors

// 8 ranks of each family without their own table, from the one over 4.
TEST(AnchorTest, TheTableOverFourRanksTellsWhatEightTake) {
  std::vector<double> anchored;
  std::vector<double> plain;
  for (const std::string name : {"a100", "h100", "h200", "b200"}) {
    const Cluster shipped = load_cluster(name, kClusters);
    for (const Collective kind :
         {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}) {
      const CollectiveTable measured = collective_table(shipped, {kind, 8, 1});
      Cluster cluster = shipped;
      std::erase_if(cluster.collectives,
                    [](const CollectiveSeries& series) { return series.ranks == 8; });
      const CollectivePrice price = *collective_price(cluster, {kind, 8, 1});
      EXPECT_TRUE(price.is_modelled);
      EXPECT_EQ(price.sources.size(), 1U);
      const CollectiveTable model = modelled(*shipped.topology, {kind, 8, 1}).time;
      for (Bytes bytes = kib(1); bytes <= mib(512); bytes = bytes * 2) {
        const double truth = to_us(measured.time(bytes).isolated);
        anchored.push_back(std::abs(to_us(price.time.time(bytes).isolated) / truth - 1));
        plain.push_back(std::abs(to_us(model.time(bytes).isolated) / truth - 1));
      }
    }
  }
  std::cout << "8 ranks from 4: median " << 100 * at(anchored, 0.5) << " %, p90 "
            << 100 * at(anchored, 0.9) << " %; the model alone " << 100 * at(plain, 0.5) << " and "
            << 100 * at(plain, 0.9) << " %\n";
  EXPECT_NEAR(at(anchored, 0.5), 0.11, 0.015);
  EXPECT_NEAR(at(anchored, 0.9), 0.26, 0.02);
  EXPECT_LT(at(anchored, 0.9), at(plain, 0.9));
}

TEST(AnchorTest, BetweenNodesTheNearestTwoWorldsCount) {
  Cluster cluster = load_cluster("h100", kClusters);
  const Topology topology = *cluster.topology;
  // Twice what the model says on 4 nodes, half of it on 8; on two it says nothing of more.
  for (const auto& [nodes, factor] : {std::pair<std::int64_t, double>{2, 7}, {4, 2}, {8, 0.5}}) {
    const CollectiveTable table =
        modelled(topology, {Collective::AllReduce, 8 * nodes, nodes}).time;
    Points points;
    for (Bytes bytes = kib(64); bytes <= gib(1); bytes = bytes * 2) {
      points.push_back(
          {.bytes = bytes, .isolated = from_us(factor * to_us(table.time(bytes).isolated))});
    }
    cluster.collectives.push_back(
        {.collective = Collective::AllReduce, .ranks = 8 * nodes, .nodes = nodes, .times = points});
  }
  const CollectiveKey key{Collective::AllReduce, 128, 16};
  const CollectivePrice price = *collective_price(cluster, key);
  for (const Bytes bytes : {kib(1), mib(25), gib(4)}) {
    EXPECT_NEAR(to_us(price.time.time(bytes).isolated) /
                    to_us(modelled(topology, key).time.time(bytes).isolated),
                1, 1e-3);
  }
  EXPECT_NE(price.assumption.find("anchored to tables over 64 and 32 ranks"), std::string::npos)
      << price.assumption;
}

}  // namespace
}  // namespace dovetail::models
