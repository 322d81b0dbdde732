// Clusters made of logs, alone and over a prior: which points are whose, and that the file says so.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/cluster_of.h"

#include "tests/calibrate/logs/nccl_tests_log.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/logs/gpus.h"
#include "models/clusters/cluster.h"

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using models::CollectivePoint;
using schedule::Collective;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CollectiveLog log_of(const std::vector<std::pair<Bytes, int>>& points, std::int64_t ranks = 8) {
  CollectiveLog log;
  log.tool = "nccl-tests";
  log.gpu = "NVIDIA H100 80GB HBM3";
  for (const auto& [bytes, us] : points) {
    log.samples.push_back({Collective::AllReduce, ranks, 1, bytes, from_us(us), Launch::Queued});
  }
  return log;
}

models::Cluster shipped(const std::string& name) {
  return models::load_cluster(name, std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters");
}

const std::vector<CollectivePoint>& points_of(const models::Cluster& cluster) {
  return std::get<std::vector<CollectivePoint>>(cluster.collectives.at(0).times);
}

TEST(ClusterOfTest, AloneHasTheTablesAndThePeaksOfTheGpuThatTheLogNames) {
  const ClusterResult result =
      cluster_of(log_of({{mib(1), 40}, {mib(2), 60}}), {.origin = "a.log"});
  EXPECT_EQ(result.cluster.name, "imported");
  EXPECT_EQ(result.cluster.ranks, 8);
  EXPECT_EQ(points_of(result.cluster).size(), 2u);
  ASSERT_TRUE(result.cluster.compute.has_value());
  EXPECT_EQ(result.cluster.compute->memory, BytesPerSecond(3350e9));
  EXPECT_THAT(result.cluster.notes.at("compute"), HasSubstr("uncalibrated"));
  EXPECT_THAT(result.ranges, ElementsAre("all-reduce over 8 ranks: 1 MiB to 2 MiB measured"));
  EXPECT_THAT(result.missing, IsEmpty());
  // What is written can be read.
  EXPECT_EQ(models::parse_cluster("a.json", models::cluster_to_json(result.cluster)),
            result.cluster);
}

TEST(ClusterOfTest, SaysWhatIsMissingWhereTheGpuIsNotKnown) {
  CollectiveLog log = log_of({{mib(1), 40}, {mib(2), 60}});
  log.gpu = "NVIDIA Graphics Device";
  const ClusterResult result = cluster_of(log, {});
  EXPECT_FALSE(result.cluster.compute.has_value());
  EXPECT_THAT(result.missing,
              Contains(HasSubstr("the GPU \"NVIDIA Graphics Device\" is not in the list")));
  EXPECT_TRUE(cluster_of(log, {.gpu = "gb200"}).cluster.compute.has_value());
  EXPECT_THAT(error_of([&] { cluster_of(log, {.gpu = "h1000"}); }),
              HasSubstr("--gpu \"h1000\": not known"));
}

TEST(ClusterOfTest, OverAPriorKeepsItsPointsOutsideTheMeasuredRange) {
  // a100x8 has every doubling from 32 KiB on; 1 MiB takes 101.9 us there.
  const models::Cluster prior = shipped("a100x8");
  const ClusterResult result =
      cluster_of(log_of({{mib(1), 120}, {mib(3), 130}, {mib(8), 140}}), {.prior = prior});
  const auto& points = points_of(result.cluster);
  std::size_t measured = 0;
  for (const CollectivePoint& point : points) {
    const bool inside = point.bytes >= mib(1) && point.bytes <= mib(8);
    measured += inside ? 1 : 0;
    if (inside) continue;
    EXPECT_THAT(points_of(prior), Contains(point));
  }
  EXPECT_EQ(measured, 3u);
  EXPECT_EQ(points.front().bytes, kib(32));
  ASSERT_TRUE(result.cluster.collectives[0].measured.has_value());
  EXPECT_EQ(result.cluster.collectives[0].measured->from, mib(1));
  EXPECT_EQ(result.cluster.collectives[0].measured->to, mib(8));
  EXPECT_EQ(result.cluster.collectives[0].measured->prior, "a100x8");
  EXPECT_EQ(result.cluster.compute, prior.compute);
  EXPECT_EQ(result.cluster.host, prior.host);
  EXPECT_EQ(result.cluster.name, "a100x8-measured");
  ASSERT_EQ(result.seams.size(), 2u);
  // 120 / 101.9 = 1.18
  EXPECT_THAT(result.seams[0], HasSubstr("at 1 MiB: measured 120 us, 118 % of a100x8's"));
  EXPECT_EQ(models::parse_cluster("a.json", models::cluster_to_json(result.cluster)),
            result.cluster);
}

TEST(ClusterOfTest, AModelIsCalledOneAndReplacesNothing) {
  CollectiveLog log = log_of({{mib(1), 40}, {mib(2), 60}});
  log.is_model = true;
  EXPECT_THAT(cluster_of(log, {}).ranges,
              ElementsAre("all-reduce over 8 ranks: 1 MiB to 2 MiB, a model"));
  const models::Cluster prior = shipped("a100x8");
  const ClusterResult over = cluster_of(log, {.prior = prior});
  EXPECT_EQ(over.cluster.collectives, prior.collectives);
  EXPECT_EQ(over.cluster.name, "a100x8-with-model");
  EXPECT_THAT(over.ranges, ElementsAre(HasSubstr("a100x8's stays")));
}

TEST(ClusterOfTest, AddsATableForRanksThatThePriorDoesNotHave) {
  const ClusterResult result = cluster_of(log_of({{mib(1), 120}, {mib(2), 130}}, 64),
                                          {.name = "x64", .prior = shipped("a100x8")});
  ASSERT_EQ(result.cluster.collectives.size(), 2u);
  EXPECT_EQ(result.cluster.ranks, 64);
  EXPECT_FALSE(result.cluster.collectives[1].measured.has_value());
}

TEST(ClusterOfTest, NeedsTwoSizesOfWhichThePriorMayBringOne) {
  const CollectiveLog log = log_of({{mib(1), 120}});
  EXPECT_THAT(error_of([&] { cluster_of(log, {}); }),
              HasSubstr("all-reduce over 8 ranks: one size only, 1 MiB; a table needs two"));
  EXPECT_GT(points_of(cluster_of(log, {.prior = shipped("a100x8")}).cluster).size(), 2u);
  // Beside a whole table it is left out and told.
  CollectiveLog both = log_of({{mib(1), 120}, {mib(2), 130}}, 16);
  both.samples.insert(both.samples.end(), log.samples.begin(), log.samples.end());
  const ClusterResult result = cluster_of(both, {});
  EXPECT_EQ(result.cluster.collectives.size(), 1u);
  EXPECT_EQ(result.cluster.ranks, 16);
  EXPECT_THAT(result.missing, Contains(HasSubstr("over 8 ranks: one size only")));
}

TEST(ClusterOfTest, SamplesALineThatAPriorHas) {
  models::Cluster prior = shipped("a100x8");
  prior.collectives[0].times = models::AlphaBeta{.alpha = from_us(10), .ns_per_byte = 0.001};
  const ClusterResult result = cluster_of(log_of({{mib(1), 12}, {mib(2), 14}}), {.prior = prior});
  EXPECT_EQ(points_of(result.cluster).front().bytes, kib(1));
  EXPECT_EQ(points_of(result.cluster).back().bytes, gib(16));
}

TEST(GpusTest, KnowsTheNamesThatDriversUse) {
  struct Case {
    const char* device;
    const char* name;
  };
  for (const Case& one :
       {Case{"NVIDIA A100-SXM4-40GB", "a100-sxm-40"}, Case{"NVIDIA A100 80GB PCIe", "a100-pcie-80"},
        Case{"Tesla V100-SXM2-16GB", "v100"}, Case{"NVIDIA H100 PCIe", "h100-pcie"},
        Case{"NVIDIA GH200 480GB", "gh200"}, Case{"NVIDIA H200", "h200"}, Case{"NVIDIA H20", "h20"},
        Case{"NVIDIA GB200", "gb200"}, Case{"NVIDIA L40S", "l40s"},
        Case{"AMD Instinct MI300X", "mi300x"}}) {
    ASSERT_TRUE(find_gpu(one.device).has_value()) << one.device;
    EXPECT_EQ(find_gpu(one.device)->name, one.name);
  }
  EXPECT_FALSE(find_gpu("NVIDIA Graphics Device").has_value());
  EXPECT_FALSE(find_gpu("").has_value());
}

// Four ranks a node: with that told, other numbers of ranks have a price, which follows the two largest worlds.
TEST(ClusterOfTest, FitsLinksToTablesOverSeveralNodes) {
  CollectiveLog log;
  for (const std::int64_t nodes : {1, 4, 8}) {
    for (const std::int64_t mebibytes : {1, 16, 256}) {
      const double us = 100.0 * static_cast<double>(nodes) + 20.0 * static_cast<double>(mebibytes);
      log.samples.push_back(
          {Collective::AllReduce, 4 * nodes, nodes, mib(mebibytes), from_us(us), Launch::Queued});
    }
  }
  const ClusterResult result = cluster_of(log, {.name = "mine", .node_ranks = 4});
  ASSERT_TRUE(result.cluster.topology.has_value());
  EXPECT_EQ(result.cluster.topology->node_ranks(), 4);
  EXPECT_THAT(result.ranges.back(), HasSubstr("links for other numbers of ranks, fitted: nvlink "));
  const auto price = models::collective_price(result.cluster, {Collective::AllReduce, 64, 16});
  ASSERT_TRUE(price.has_value());
  EXPECT_THAT(price->assumption, HasSubstr("anchored to tables over 32 and 16 ranks"));
  EXPECT_EQ(models::parse_cluster("a.json", models::cluster_to_json(result.cluster)),
            result.cluster);
  EXPECT_THAT(
      error_of([&] { cluster_of(log, {.node_ranks = 2}); }),
      HasSubstr("--node-ranks 2: all-reduce over 4 ranks lay on 1 nodes, expected 2 at least"));
}

}  // namespace
}  // namespace dovetail::imports
