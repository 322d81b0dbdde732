// Where a group's ranks lie, and what the model of the links makes of it: no wire is exceeded, more bytes and
// more nodes take longer, and tables that the model was not made from are met as stated in topology.h.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/topology.h"

#include "base/statistics.h"
#include "models/clusters/cluster.h"
#include "models/costs/costs_json.h"
#include "tests/models/small_cluster.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::models {
namespace {

using dovetail::testing::error_of;
using schedule::Collective;
using schedule::ProcessGroup;
using schedule::Program;
using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Ranks `first`, `first` + stride, ...; `instances` of them, each beginning one rank later.
ProcessGroup strided(std::int32_t size, std::int32_t stride, std::int32_t instances = 1,
                     std::int32_t first = 0) {
  ProcessGroup group{.id = GroupId{0}, .name = "g", .ranks = {}, .instance_size = size};
  for (std::int32_t i = 0; i < instances; ++i) {
    for (std::int32_t r = 0; r < size; ++r) group.ranks.push_back(Rank{first + i + r * stride});
  }
  return group;
}

Program program_over(ProcessGroup group, std::int64_t world) {
  Program program;
  program.world_size = world;
  program.groups = {std::move(group)};
  program.reductions = {{.gradient = TensorId{0}, .group = GroupId{0}}};
  return program;
}

// 100 GB/s in nodes of 4, 10 GB/s of each rank between them.
Topology small_topology() {
  return {.levels = {
              {.link = "nvlink", .ranks = 4, .rate = BytesPerSecond(1e11), .hop = microseconds(2)},
              {.link = "network",
               .rate = BytesPerSecond(1e10),
               .hop = microseconds(20),
               .start = microseconds(100),
               .ll128 = false}}};
}

double us_of(const Topology& topology, CollectiveKey key, Bytes bytes) {
  return to_us(modelled(topology, key).time.time(bytes).isolated);
}

// --------------------------------------------------------------------------------- placement

TEST(PlacementTest, CountsTheNodesOfAGroup) {
  EXPECT_EQ(nodes_of(strided(8, 1), 8), 1);       // tensor parallelism
  EXPECT_EQ(nodes_of(strided(8, 8, 8), 8), 8);    // data parallelism across it
  EXPECT_EQ(nodes_of(strided(16, 4, 4), 8), 8);   // two ranks on each node
  EXPECT_EQ(nodes_of(strided(2, 32, 32), 8), 2);  // stages of a pipeline
  EXPECT_EQ(nodes_of(strided(64, 1), 64), 1);     // one NVLink domain
}

TEST(PlacementTest, TheInstanceOnTheMostNodesCounts) {
  // Ranks 0 to 3 lie on one node of 8, ranks 6 to 9 on two.
  ProcessGroup group = strided(4, 1);
  for (std::int32_t rank = 6; rank < 10; ++rank) group.ranks.push_back(Rank{rank});
  EXPECT_EQ(nodes_of(group, 8), 2);
}

TEST(PlacementTest, NeighboursFillNodes) {
  EXPECT_EQ(nodes_of_neighbours(8, 8), 1);
  EXPECT_EQ(nodes_of_neighbours(9, 8), 2);
}

// ------------------------------------------------------------------------------------- model

TEST(ModelledCollectiveTest, AGatherInOneNodeIsARing) {
  // 8.4 us + 3 hops of 2 us + 3/4 of 1 GB at 100 GB/s: 7514.4 us.
  EXPECT_NEAR(us_of(small_topology(), {Collective::AllGather, 4, 1}, Bytes(1'000'000'000)), 7514.4,
              0.01);
}

TEST(ModelledCollectiveTest, AGatherAcrossNodesGoesByAllTheirInterfaces) {
  // 4 nodes of 4: 40 GB/s. 8.4 + 100 us, 12 hops of 3 us (posting a message) and 3 of 20 us, 15/16 of 1 GB: 204.4 + 23437.5 us.
  EXPECT_NEAR(us_of(small_topology(), {Collective::AllGather, 16, 4}, Bytes(1'000'000'000)),
              23641.9, 0.01);
}

TEST(ModelledCollectiveTest, ASmallMessageTakesTheQuickProtocol) {
  // 6.6 us + 12 hops of 1 us (posting a message) + 3 of 2.7 + 3 us = 35.7 us.
  EXPECT_NEAR(us_of(small_topology(), {Collective::AllGather, 16, 4}, Bytes(0)), 35.7, 0.01);
}

TEST(ModelledCollectiveTest, AnExchangeWaitsForItsSlowerLink) {
  // 8 ranks on 2 nodes: 4/8 of 1 GB leave at 10 GB/s: 50000 us; 3/8 go at 100 GB/s meanwhile. 8.4 + 100 + 2 + 20 us.
  const ModelledCollective found = modelled(small_topology(), {Collective::AllToAll, 8, 2});
  EXPECT_NEAR(to_us(found.time.time(Bytes(1'000'000'000)).isolated), 50130.4, 0.01);
  ASSERT_EQ(found.loads.size(), 2U);
  EXPECT_NEAR(found.loads[0].share, 0.075, 1e-9);
  EXPECT_EQ(found.loads[1], (NamedLoad{"network", 1}));
}

TEST(ModelledCollectiveTest, AGroupLoadsTheLinksThatItUses) {
  const auto loads = [](CollectiveKey key) { return modelled(small_topology(), key).loads; };
  EXPECT_THAT(loads({Collective::AllReduce, 4, 1}), ElementsAre(NamedLoad{"nvlink", 1}));
  EXPECT_THAT(loads({Collective::AllReduce, 4, 4}), ElementsAre(NamedLoad{"network", 1}));
  EXPECT_THAT(loads({Collective::AllGather, 16, 4}),
              ElementsAre(NamedLoad{"nvlink", 0.4}, NamedLoad{"network", 1}));
  EXPECT_THAT(loads({Collective::SendRecv, 2, 1}), ElementsAre(NamedLoad{"nvlink", 1}));
  EXPECT_THAT(loads({Collective::SendRecv, 2, 2}), ElementsAre(NamedLoad{"network", 1}));
}

// ------------------------------------------------------------------------------- three levels

// Racks of 16 ranks in 4 nodes, whose uplinks carry a quarter of what their interfaces do.
Topology of_racks() {
  Topology topology = small_topology();
  topology.levels.back().ranks = 16;
  topology.levels.push_back(
      {.link = "spine", .rate = BytesPerSecond(2.5e9), .hop = microseconds(30)});
  return topology;
}

TEST(LevelsTest, AGroupIsPlacedOnNodesAndRacks) {
  const auto on = [](const ProcessGroup& group) {
    const CollectiveKey key = key_of(Collective::AllReduce, group, of_racks().unit_ranks());
    return std::pair(key.nodes, key.units(1));
  };
  EXPECT_EQ(on(strided(4, 1)), (std::pair<std::int64_t, std::int64_t>(1, 1)));
  EXPECT_EQ(on(strided(16, 1)), (std::pair<std::int64_t, std::int64_t>(4, 1)));
  EXPECT_EQ(on(strided(64, 1)), (std::pair<std::int64_t, std::int64_t>(16, 4)));
  EXPECT_EQ(on(strided(4, 16, 16)), (std::pair<std::int64_t, std::int64_t>(4, 4)));
  EXPECT_EQ(key_of_neighbours(Collective::AllReduce, 64, 0, of_racks()).units(1), 4);
  EXPECT_EQ(key_of_neighbours(Collective::AllReduce, 8, 8, of_racks()).units(1), 2);
  EXPECT_EQ(title_of(key_of_neighbours(Collective::AllReduce, 64, 0, of_racks())),
            "all-reduce over 64 ranks on 16 nodes in 4 racks");
}

TEST(LevelsTest, WithinARackTheNetworkIsAsBefore) {
  for (const CollectiveKey key : {CollectiveKey{Collective::AllReduce, 16, 4, {1}},
                                  CollectiveKey{Collective::AllToAll, 16, 4, {1}},
                                  CollectiveKey{Collective::SendRecv, 2, 2, {1}}}) {
    EXPECT_EQ(modelled(of_racks(), key).time,
              modelled(small_topology(), {key.collective, key.ranks, key.nodes}).time);
  }
}

TEST(LevelsTest, ARingIsNotHinderedByWhatHindersAnExchange) {
  const auto ratio = [](Collective kind) {
    const double racks = us_of(of_racks(), {kind, 64, 16, {4}}, gib(1));
    return racks / us_of(small_topology(), {kind, 64, 16}, gib(1));
  };
  EXPECT_NEAR(ratio(Collective::AllGather), 1, 0.01);
  // 48 of 64 parts leave a rack at 2.5 GB/s, where 60 left a node at 10.
  EXPECT_NEAR(ratio(Collective::AllToAll), 48.0 / 60 * 4, 0.01);
}

TEST(LevelsTest, AReplicaOnEachRackHasItsShareOfTheUplinksOnly) {
  // 3/4 of 1 GB twice at 2.5 GB/s.
  const CollectiveKey key{Collective::AllReduce, 4, 4, {4}};
  EXPECT_NEAR(us_of(of_racks(), key, Bytes(1'000'000'000)) / 600'000, 1, 0.01);
  EXPECT_THAT(modelled(of_racks(), key).loads,
              ElementsAre(NamedLoad{"network", 0.25}, NamedLoad{"spine", 1}));
}

// Files and logs say on how many nodes, and not on how many racks, a table was measured.
TEST(LevelsTest, AskedByNodesAloneATableIsFoundAndRacksAreCrossed) {
  Cluster cluster{.name = "racks", .ranks = 64, .collectives = {}, .topology = of_racks()};
  cluster.collectives = {{.collective = Collective::AllToAll,
                          .ranks = 32,
                          .nodes = 8,
                          .times = AlphaBeta{microseconds(7), 0}}};
  EXPECT_EQ(collective_table(cluster, {Collective::AllToAll, 32, 8}).time(gib(1)).isolated,
            microseconds(7));
  EXPECT_EQ(collective_assumption(cluster, {Collective::AllToAll, 32, 8}), "");
  cluster.collectives.clear();
  EXPECT_EQ(collective_table(cluster, {Collective::AllToAll, 64, 16}),
            modelled(of_racks(), {Collective::AllToAll, 64, 16, {4}}).time);
}

TEST(LevelsTest, AStageInAnotherRackIsReachedByTheSpine) {
  const CollectiveKey key{Collective::SendRecv, 2, 2, {2}};
  EXPECT_NEAR(us_of(of_racks(), key, Bytes(1'000'000'000)), 400'000 + 8.4 + 30, 0.1);
  const Cluster cluster{.name = "racks", .ranks = 64, .collectives = {}, .topology = of_racks()};
  const Costs costs = costs_for(cluster, program_over(strided(2, 16, 16), 64));
  const ProcessGroup far = strided(2, 16, 16);
  EXPECT_NEAR(to_us(costs.collective(Collective::SendRecv, far, Bytes(1'000'000'000)).isolated),
              400'000 + 8.4 + 30, 0.1);
  EXPECT_EQ(costs_from_json(JsonFile("costs.json", costs_to_json(costs)).root()), costs);
}

// -------------------------------------------------------------------------------- plausibility

// How long the bytes alone take, at the least.
double wire_us(const Topology& topology, CollectiveKey key, Bytes bytes) {
  const auto n = static_cast<double>(key.ranks);
  const double per_node = n / static_cast<double>(key.nodes);
  const double size = static_cast<double>(bytes.count()) / 1e3;  // at GB/s: us
  const double node = topology.node().all_reduce_rate.value_or(topology.node().rate).count() / 1e9;
  const double network = topology.levels.back().rate.count() / 1e9;
  switch (key.collective) {
    case Collective::AllReduce: {
      // Across two nodes each byte crosses once, each way.
      const double across = (key.nodes == 2 ? 2 : 1) * per_node * network;
      return 2 * (n - 1) / n * size / (key.nodes == 1 ? node : std::min(node, across));
    }
    case Collective::AllGather:
    case Collective::ReduceScatter:
      return (n - 1) / n * size / (key.nodes == 1 ? node : std::min(node, per_node * network));
    case Collective::AllToAll:
      return (n - per_node) / n * size / network;
    case Collective::Broadcast:
    case Collective::SendRecv:
      return size / (key.nodes == 1 ? node : std::min(node, per_node * network));
  }
  return 0;
}

std::vector<CollectiveKey> many_keys(Collective kind) {
  std::vector<CollectiveKey> keys;
  for (std::int64_t nodes = 1; nodes <= 64; nodes *= 2) {
    for (const std::int64_t per_node : {1, 2, 4, 8}) {
      if (nodes * per_node > 1) keys.push_back({kind, nodes * per_node, nodes});
    }
  }
  return keys;
}

TEST(ModelledCollectiveTest, NoWireIsExceededAndMoreBytesTakeLonger) {
  for (const char* const family : {"a100", "h100", "b200"}) {
    const Topology topology = *load_cluster(family, kClusters).topology;
    for (const Collective kind : kAllOf<Collective>) {
      for (const CollectiveKey& key : many_keys(kind)) {
        if (kind == Collective::SendRecv && key.ranks != 2) continue;
        const CollectiveTable table = modelled(topology, key).time;
        double before = 0;
        for (Bytes bytes(256); bytes <= gib(4); bytes = bytes * 4) {
          const double us = to_us(table.time(bytes).isolated);
          EXPECT_GT(us, before) << family << ' ' << title_of(key) << ' ' << bytes;
          EXPECT_GE(us, wire_us(topology, key, bytes)) << family << ' ' << title_of(key);
          before = us;
        }
      }
    }
  }
}

TEST(ModelledCollectiveTest, MoreNodesTakeLonger) {
  const Topology topology = *load_cluster("h100", kClusters).topology;
  for (const Collective kind :
       {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter,
        Collective::AllToAll, Collective::Broadcast}) {
    for (const std::int64_t per_node : {1, 2, 4, 8}) {
      for (const Bytes bytes : {kib(64), mib(1), mib(25), mib(256), gib(2)}) {
        double before = 0;
        for (std::int64_t nodes = per_node == 1 ? 2 : 1; nodes <= 64; nodes *= 2) {
          const CollectiveKey key{kind, nodes * per_node, nodes};
          const double us = us_of(topology, key, bytes);
          EXPECT_GE(us, before) << title_of(key) << ' ' << bytes;
          before = us;
        }
      }
    }
    // The same ranks, spread over more nodes.
    for (const Bytes bytes : {mib(25), mib(256), gib(2)}) {
      double before = 0;
      for (const std::int64_t nodes : {1, 2, 4, 8}) {
        const double us = us_of(topology, {kind, 8, nodes}, bytes);
        EXPECT_GE(us, before) << to_string(kind) << " on " << nodes << ' ' << bytes;
        before = us;
      }
    }
  }
}

// Machines of others, whose tables are no part of the families.
struct Elsewhere {
  std::string family, network, machine;
  CollectiveKey key;
  double low, high;  // of modelled / measured, from 64 MiB on
};

TEST(ModelledCollectiveTest, MeetsTablesThatItWasNotMadeFrom) {
  const std::vector<Elsewhere> all = {
      {"b200", "b200", "b200x16_roce", {Collective::AllReduce, 16, 2}, 0.7, 0.95},
      {"b200", "h100_efa", "b200x32_efa", {Collective::AllReduce, 32, 4}, 0.96, 1.3},
  };
  for (const Elsewhere& one : all) {
    Topology topology = *load_cluster(one.family, kClusters).topology;
    topology.levels.back() = load_cluster(one.network, kClusters).topology->levels.back();
    const CollectiveTable measured =
        collective_table(load_cluster(one.machine, kClusters), one.key);
    for (Bytes bytes = mib(64); bytes <= gib(8); bytes = bytes * 2) {
      const double ratio = us_of(topology, one.key, bytes) / to_us(measured.time(bytes).isolated);
      EXPECT_GE(ratio, one.low) << one.machine << ' ' << bytes;
      EXPECT_LE(ratio, one.high) << one.machine << ' ' << bytes;
    }
  }
}

// Rate and hop of a100 come from this table, two numbers for 31 sizes from 8 bytes to 8 GiB.
TEST(ModelledCollectiveTest, HasTheShapeOfAnAllReduceOverTwoNodes) {
  const Topology topology = *load_cluster("a100", kClusters).topology;
  const Cluster machine = load_cluster("a100x16_ib", kClusters);
  std::vector<double> errors;
  for (const CollectivePoint& point :
       std::get<std::vector<CollectivePoint>>(machine.collectives.front().times)) {
    const double us = us_of(topology, {Collective::AllReduce, 16, 2}, point.bytes);
    errors.push_back(std::abs(us / to_us(point.isolated) - 1));
    EXPECT_LE(errors.back(), 0.35) << point.bytes;
  }
  EXPECT_EQ(errors.size(), 31U);
  EXPECT_LE(median(errors), 0.1);
}

TEST(ModelledCollectiveTest, MeetsAnAllReduceOverAWholeNvlinkDomain) {
  // 72 GB200, published in place at github.com/coreweave/nccl-tests: README.md (0120901a).
  const Topology topology = *load_cluster("gb200", kClusters).topology;
  const std::vector<std::pair<Bytes, double>> measured = {
      {mib(512), 1835.9}, {gib(1), 2924.7}, {gib(2), 5474.6}, {gib(4), 10141}, {gib(8), 20006}};
  for (const auto& [bytes, us] : measured) {
    const double ratio = us_of(topology, {Collective::AllReduce, 72, 1}, bytes) / us;
    EXPECT_GE(ratio, 0.79) << bytes;
    EXPECT_LE(ratio, 1.2) << bytes;
  }
}

TEST(ModelledCollectiveTest, MeetsTheBestAllReducesOfUpTo64Nodes) {
  // Bus bandwidth of 1 GiB, best runs, from where the network's blocks are, too, but of other collectives:
  // nanotron-ultrascale-playbook (924e4d0). Two nodes are the odd ones out, there the mean is 362 GB/s.
  const Topology topology = *load_cluster("h100_efa", kClusters).topology;
  const std::vector<std::pair<std::int64_t, double>> best = {
      {4, 219.1}, {8, 192.7}, {16, 188.4}, {32, 194.2}, {64, 177.4}};
  for (const auto& [nodes, bus] : best) {
    const CollectiveKey key{Collective::AllReduce, 8 * nodes, nodes};
    const auto n = static_cast<double>(key.ranks);
    const double measured_us = 2 * (n - 1) / n * 1073741824 / (1e3 * bus);
    const double ratio = us_of(topology, key, gib(1)) / measured_us;
    EXPECT_GE(ratio, 0.72) << nodes;
    EXPECT_LE(ratio, 0.9) << nodes;
  }
}

// NCCL has ways in two levels, too.
TEST(ModelledCollectiveTest, AnAllReduceIsAboutAsQuickAsTheSameByHandInTwoLevels) {
  for (const std::string family : {"h100", "b200", "a100", "h200_nodes_of_4"}) {
    const Cluster cluster = load_cluster(family, kClusters);
    const std::int64_t node = cluster.topology->node_ranks();
    for (const std::int64_t nodes : {2, 8, 32}) {
      for (Bytes bytes = kib(64); bytes <= gib(4); bytes = bytes * 4) {
        const auto us = [&](Collective kind, std::int64_t ranks, std::int64_t on, Bytes size) {
          return to_us(collective_table(cluster, {kind, ranks, on}).time(size).isolated);
        };
        const double by_hand =
            us(Collective::ReduceScatter, node, 1, bytes) +
            us(Collective::AllReduce, nodes, nodes, Bytes(bytes.count() / node)) +
            us(Collective::AllGather, node, 1, bytes);
        EXPECT_LE(us(Collective::AllReduce, node * nodes, nodes, bytes), 1.25 * by_hand)
            << family << ", nodes " << nodes << ", " << bytes;
      }
    }
  }
}

TEST(ModelledCollectiveTest, TwoDomainsAreNotQuickerThanOneOfThem) {
  for (const std::string family : {"h100", "a100", "gb200", "gb300"}) {
    const Cluster cluster = load_cluster(family, kClusters);
    const std::int64_t node = cluster.topology->node_ranks();
    for (const Collective kind :
         {Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter}) {
      const CollectiveTable one = collective_table(cluster, {kind, node, 1});
      const CollectiveTable two = collective_table(cluster, {kind, 2 * node, 2});
      for (Bytes bytes = kib(4); bytes <= gib(8); bytes = bytes * 2)
        EXPECT_GE(two.time(bytes).isolated, one.time(bytes).isolated) << family << ' ' << bytes;
    }
  }
}

TEST(ModelledCollectiveTest, NoBumpOfATableIsInheritedByALargerNode) {
  const CollectiveTable table =
      collective_table(load_cluster("gb300", kClusters), {Collective::AllReduce, 64, 1});
  for (Bytes bytes = kib(1); bytes <= gib(4); bytes = bytes * 2)
    EXPECT_GE(table.time(bytes * 2).isolated, table.time(bytes).isolated) << bytes;
}

// --------------------------------------------------------------------------- clusters with one

Cluster with_topology() {
  Cluster cluster = small_cluster();
  cluster.ranks = 4;
  cluster.topology = small_topology();
  const auto line = [](std::int64_t ranks, std::int64_t nodes, std::int64_t us) {
    return CollectiveSeries{.collective = Collective::AllGather,
                            .ranks = ranks,
                            .nodes = nodes,
                            .times = AlphaBeta{microseconds(us), 0},
                            .link = "measured"};
  };
  cluster.collectives = {line(2, 1, 10), line(4, 1, 30), line(4, 4, 500)};
  return cluster;
}

TEST(TopologyOfClusterTest, WhatWasMeasuredWinsWhereItWasMeasured) {
  const Cluster cluster = with_topology();
  EXPECT_EQ(collective_table(cluster, {Collective::AllGather, 4, 1}).time(kib(1)).isolated,
            microseconds(30));
  EXPECT_EQ(collective_table(cluster, {Collective::AllGather, 4, 4}).time(kib(1)).isolated,
            microseconds(500));
  EXPECT_TRUE(collective_price(cluster, {Collective::AllGather, 4, 2})->is_modelled);
  EXPECT_EQ(collective_assumption(cluster, {Collective::ReduceScatter, 4, 4}),
            "reduce-scatter over 4 ranks on 4 nodes is taken as equal to the all-gather");
}

TEST(TopologyOfClusterTest, BetweenTwoWorldsOfOneShapeItInterpolates) {
  // log(3/2) / log(4/2) = 0.585 of the way from 10 us to 30 us.
  const Cluster cluster = with_topology();
  EXPECT_NEAR(to_us(collective_table(cluster, {Collective::AllGather, 3, 1}).time(kib(1)).isolated),
              21.7, 0.01);
  EXPECT_EQ(collective_assumption(cluster, {Collective::AllGather, 3, 1}),
            "all-gather over 3 ranks on 1 node is interpolated between 2 and 4 ranks");
}

TEST(TopologyOfClusterTest, CostsKnowWhereAGroupLies) {
  const Cluster cluster = with_topology();
  const Costs inside = costs_for(cluster, program_over(strided(4, 1, 1), 16));
  const Costs across = costs_for(cluster, program_over(strided(4, 4, 4), 16));
  const auto gather = [](const Costs& costs, const ProcessGroup& group) {
    return costs.collective(Collective::AllGather, group, kib(1)).isolated;
  };
  EXPECT_EQ(gather(inside, strided(4, 1)), microseconds(30));
  EXPECT_EQ(gather(across, strided(4, 4, 4)), microseconds(500));
  // What lowering adds: pairs of ranks, in a node and across.
  EXPECT_LT(across.collective(Collective::SendRecv, strided(2, 1), mib(1)).isolated,
            across.collective(Collective::SendRecv, strided(2, 4), mib(1)).isolated);
  EXPECT_THAT(error_of([&] { static_cast<void>(gather(inside, strided(4, 4))); }),
              HasSubstr("no table of all-gather over 4 ranks on 4 nodes"));
}

TEST(TopologyOfClusterTest, CostsAreReadBackWithNodes) {
  const Costs costs = costs_for(with_topology(), program_over(strided(4, 4, 4), 16));
  EXPECT_THAT(costs.unit_ranks, ElementsAre(4));
  EXPECT_EQ(parse_costs("x.json", costs_to_json(costs)), costs);
}

TEST(TopologyOfClusterTest, AMeasuredCollectiveLoadsItsOwnLinkAModelledOneThoseOfTheTopology) {
  const Costs costs = costs_for(with_topology(), program_over(strided(4, 1, 1), 16));
  const CollectiveCost& gather = *costs.find({Collective::AllGather, 4, 1});
  ASSERT_EQ(gather.loads.size(), 1U);
  EXPECT_EQ(costs.links[static_cast<std::size_t>(gather.loads[0].link)], "measured");
  const CollectiveCost& exchange = *costs.find({Collective::SendRecv, 2, 2});
  ASSERT_EQ(exchange.loads.size(), 1U);
  EXPECT_EQ(costs.links[static_cast<std::size_t>(exchange.loads[0].link)], "network");
}

TEST(TopologyOfClusterTest, SaysWhatIsModelledFromWhat) {
  const Program program = program_over(strided(8, 2), 16);
  EXPECT_THAT(
      assumptions(with_topology(), program, {Collective::ReduceScatter, Collective::AllGather}),
      ::testing::Contains(
          "reduce-scatter over 8 ranks on 4 nodes, all-gather over 8 ranks on 4 nodes: "
          "modelled, not measured; from nvlink 100 GB/s and 2 us a hop, network 10 GB/s "
          "a rank and 20 us a hop"));
}

// ----------------------------------------------------------------------------------- families

TEST(FamilyTest, EveryWholeNumberOfNodesLoads) {
  for (const std::string family : {"a100", "h100", "h200", "b200"}) {
    for (const std::int64_t ranks : {1, 2, 3, 4, 8, 16, 24, 32, 64, 128, 256, 504, 512}) {
      const std::string name = family + "x" + std::to_string(ranks);
      if (name == "a100x8" || name == "h200x8" || name == "b200x8")
        continue;  // machines of their own
      const Cluster cluster = load_cluster(name, kClusters);
      EXPECT_EQ(cluster.name, name);
      EXPECT_EQ(cluster.ranks, ranks);
      EXPECT_TRUE(is_shipped_cluster(name, kClusters)) << name;
    }
  }
  for (const std::int64_t ranks : {8, 64, 128, 512}) {
    EXPECT_EQ(load_cluster("gb200x" + std::to_string(ranks), kClusters).ranks, ranks);
  }
}

TEST(FamilyTest, AMachineOfThatNameComesFirst) {
  const Cluster machine = load_cluster("h200x8", kClusters);
  EXPECT_FALSE(is_family(machine));
  EXPECT_LT(machine.collectives.size(), load_cluster("h200x16", kClusters).collectives.size());
  EXPECT_TRUE(is_family(load_cluster("h200", kClusters)));
}

TEST(FamilyTest, OtherNumbersAreRefused) {
  EXPECT_EQ(
      error_of([] { load_cluster("h100x12", kClusters); }),
      "cluster \"h100x12\": expected h100x1 to h100x8, or whole nodes: a multiple of 8 ranks");
  EXPECT_EQ(error_of([] { load_cluster("gb200x96", kClusters); }),
            "cluster \"gb200x96\": expected gb200x1 to gb200x64, or whole nodes: a multiple of 64 "
            "ranks");
  EXPECT_THAT(error_of([] { load_cluster("mi300x8x2", kClusters); }), HasSubstr("no such cluster"));
  for (const std::string name : {"h100x", "h100x0", "a100x8x2", "h100x-8", "h100x8.5"}) {
    EXPECT_THAT(error_of([&] { load_cluster(name, kClusters); }), HasSubstr("no such cluster"));
    EXPECT_FALSE(is_shipped_cluster(name, kClusters)) << name;
  }
}

TEST(FamilyTest, ChoicesAreMembersAndMachines) {
  const std::vector<std::string> choices = cluster_choices(kClusters);
  EXPECT_THAT(choices, ::testing::IsSupersetOf(
                           {"a100x16_ib", "h100x8", "h100x512", "gb200x64", "b200x8", "mi300x8"}));
  EXPECT_THAT(choices, ::testing::Not(::testing::Contains("h100")));
  for (const std::string& name : choices) EXPECT_EQ(load_cluster(name, kClusters).name, name);
  EXPECT_THAT(cluster_choices("/nowhere/at/all"), IsEmpty());
}

}  // namespace
}  // namespace dovetail::models
