// Costs as a value: compared, sampled, printed, written and read.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/json.h"
#include "models/clusters/cluster.h"
#include "models/costs/costs_json.h"
#include "models/workloads/workload.h"
#include "tests/models/small_cluster.h"
#include "tests/support/errors.h"

namespace dovetail::models {
namespace {

using schedule::Collective;
using std::chrono::microseconds;
using ::testing::HasSubstr;

const std::string kModels = std::string(DOVETAIL_SOURCE_DIR) + "/models";

Costs costs_on(const std::string& workload, const std::string& cluster) {
  const schedule::Program program = load_workload(workload, 8, kModels).program;
  return costs_for(load_cluster(cluster, kClusters), program);
}

// A product and a pass as one op.
schedule::Op layer() {
  schedule::Op op;
  op.id = OpId{5};
  op.name = "layer";
  op.work = schedule::KernelsWork{
      {schedule::GemmWork{8, 8, 16}, schedule::MemoryWork{Bytes(512), Flop(1)}}};
  return op;
}

schedule::Op fc() {
  schedule::Op op;
  op.id = OpId{3};
  op.name = "fc";
  op.work = schedule::GemmWork{8, 8, 8};
  return op;
}

// A measured kernel of 100 us that strays from 90 to 130, all-reduces of 10 to 20 us from 0.8 to 1.5.
Costs costs_with_spread() {
  Cluster cluster = small_cluster();
  cluster.kernels = {{.dtype = schedule::DType::F32,
                      .work = schedule::GemmWork{8, 8, 8},
                      .time = microseconds(100),
                      .p10 = microseconds(90),
                      .p90 = microseconds(130)}};
  cluster.collectives[0].times = std::vector<CollectivePoint>{
      {Bytes(1000), microseconds(10), {}, microseconds(8), microseconds(15)},
      {Bytes(2000), microseconds(20), {}, microseconds(16), microseconds(30)}};
  schedule::Program program;
  program.world_size = 2;
  program.groups = {{.id = GroupId{0}, .name = "dp", .ranks = {Rank{0}, Rank{1}}}};
  program.ops.push_back(fc());
  return costs_for(cluster, program);
}

TEST(CostsValueTest, WhatIsWrittenIsReadBackTheSame) {
  for (const char* cluster : {"a100x8", "h100x16_tcpxo", "mi300x8"}) {
    SCOPED_TRACE(cluster);
    const bool two_nodes = std::string(cluster) == "h100x16_tcpxo";
    const schedule::Program program =
        load_workload("bert_base", two_nodes ? 16 : 8, kModels).program;
    const Costs costs = costs_for(load_cluster(cluster, kClusters), program);
    EXPECT_EQ(parse_costs("costs.json", costs_to_json(costs)), costs);
  }
  const Costs spread = costs_with_spread();
  EXPECT_EQ(parse_costs("costs.json", costs_to_json(spread)), spread);
  const Workload profile = load_workload("mlp-1000mbit", std::nullopt, kModels);
  ASSERT_TRUE(profile.own_costs.has_value());
  EXPECT_EQ(parse_costs("costs.json", costs_to_json(*profile.own_costs)), *profile.own_costs);
}

// All that a kernel says of itself: an op of a file is found again by it.
TEST(CostsValueTest, WhatAKernelSaysOfItselfIsReadBack) {
  const schedule::Program program =
      load_workload("llama2_7b:dtype=bf16,sequence=64", 8, kModels).program;
  const Costs costs = costs_for(load_cluster("h100x8", kClusters), program);
  const Costs read = parse_costs("costs.json", costs_to_json(costs));
  EXPECT_EQ(read, costs);
  for (const schedule::Op& op : program.ops) {
    EXPECT_EQ(read.op(op, Rank{0}), costs.op(op, Rank{0})) << op.name;
  }
}

TEST(CostsValueTest, KernelsThatAreMeasuredAsOneAreRefusedTwice) {
  Cluster cluster = small_cluster();
  const schedule::MemoryWork pass{.bytes = Bytes(1024), .flop = Flop(0)};
  schedule::MemoryWork other = pass;
  other.access = schedule::Access::Plain;
  cluster.kernels = {{.dtype = schedule::DType::F32, .work = pass, .time = microseconds(20)}};
  auto text = nlohmann::ordered_json::parse(cluster_to_json(cluster));
  cluster.kernels.front().work = other;
  const auto second = nlohmann::ordered_json::parse(cluster_to_json(cluster));
  text["kernels"].push_back(second["kernels"][0]);
  EXPECT_THAT(error_of([&] { static_cast<void>(parse_cluster("c.json", text.dump())); }),
              ::testing::HasSubstr(
                  "expected each kernel once, found the same dtype and work a second time"));
}

TEST(CostsValueTest, OpsOfSeveralKernelsAreWrittenAndReadBack) {
  Cluster cluster = small_cluster();
  cluster.kernels = {{.dtype = schedule::DType::F32,
                      .work = std::get<schedule::KernelsWork>(layer().work),
                      .time = microseconds(20),
                      .op = "layer"}};
  schedule::Program program;
  program.world_size = 2;
  program.ops.push_back(layer());
  const Costs costs = costs_for(cluster, program);
  const Costs read = parse_costs("costs.json", costs_to_json(costs));
  EXPECT_EQ(read, costs);
  EXPECT_EQ(read.op(layer(), Rank{0}), microseconds(20));
  EXPECT_EQ(parse_cluster("c.json", cluster_to_json(cluster)).kernels, cluster.kernels);
}

TEST(CostsValueTest, OneChangedTimeMakesThemUnequal) {
  const Costs costs = costs_on("mlp", "a100x8");
  Costs changed = costs;
  EXPECT_EQ(changed, costs);
  KnownOp op = changed.ops.known().front();
  op.cost.by_class.front() += Duration(1);
  changed.ops.set(op);
  EXPECT_NE(changed, costs);
}

TEST(CostsValueTest, AnEditedFileIsUsedAsItStands) {
  Costs costs = costs_with_spread();
  KnownOp op = costs.ops.known().front();
  op.cost.by_class = {microseconds(7), microseconds(9)};
  op.cost.host = microseconds(4);
  costs.ops.set(op);
  const Costs read = parse_costs("costs.json", costs_to_json(costs));
  EXPECT_EQ(read.op(fc(), Rank{0}), microseconds(7));
  EXPECT_EQ(read.op(fc(), Rank{1}), microseconds(9));
  EXPECT_EQ(read.op(fc(), Rank{2}), microseconds(7));  // like rank 0
  EXPECT_EQ(read.issue(fc()), microseconds(4));
  EXPECT_EQ(read.ops.rank_classes(), 2);
}

TEST(CostsValueTest, BrokenFilesAreToldWhereTheyAreBroken) {
  std::string text = costs_to_json(costs_with_spread());
  const auto with = [&text](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
  };
  const auto error = [](const std::string& changed) {
    return testing::error_of([&] { static_cast<void>(parse_costs("c.json", changed)); });
  };
  EXPECT_THAT(error(with("\"kernel\"", "\"kernal\"")), HasSubstr("c.json: /ops/0"));
  EXPECT_THAT(error(with("\"knots\"", "\"knotz\"")), HasSubstr("c.json: /collectives/0"));
  EXPECT_THAT(error(with("dovetail.costs/1", "dovetail.costs/9")), HasSubstr("/schema"));
  EXPECT_THAT(error(with("\"bytes\": 2000.0", "\"bytes\": 1000.0")),
              HasSubstr("expected more than the size before it"));
  EXPECT_THAT(error(with("\"isolated_slope\": ", "\"isolated_slope\": -9999")),
              HasSubstr("/collectives/0/knots/0: expected slopes that leave times of 0 or more"));
}

// p10 0.9, p90 1.3: the line from the median through p90 is at 1.225 for the quantile 0.8.
TEST(CostsValueTest, QuantilesLieOnTheLinesThroughP10TheMedianAndP90) {
  const Spread spread = spread_of(microseconds(100), microseconds(90), microseconds(130));
  EXPECT_DOUBLE_EQ(spread.at(0.5), 1);
  EXPECT_DOUBLE_EQ(spread.at(0.1), 0.9);
  EXPECT_DOUBLE_EQ(spread.at(0.9), 1.3);
  EXPECT_DOUBLE_EQ(spread.at(0.8), 1.225);
  EXPECT_FALSE(spread_of(microseconds(100), {}, {}).known());
}

TEST(CostsValueTest, DrawsHaveTheQuantilesThatWereMeasured) {
  const Costs costs = costs_with_spread();
  Random random(1);
  int below = 0;
  int above = 0;
  for (int i = 0; i < 2000; ++i) {
    const Duration time = sampled(costs, random).op(fc(), Rank{0});
    below += time < microseconds(90) ? 1 : 0;
    above += time > microseconds(130) ? 1 : 0;
  }
  // A tenth of 2000, give or take four standard deviations (13).
  EXPECT_NEAR(below, 200, 54);
  EXPECT_NEAR(above, 200, 54);
  Random same(7);
  Random again(7);
  EXPECT_EQ(sampled(costs, same), sampled(costs, again));
}

TEST(CostsValueTest, TheSpreadOfACurveIsThatOfItsPoints) {
  const Costs costs = costs_with_spread();
  const CollectiveCost* cost = costs.find({Collective::AllReduce, 2});
  ASSERT_NE(cost, nullptr);
  EXPECT_EQ(cost->time.spread(Bytes(1500)), (Spread{0.8, 1.5}));
  EXPECT_EQ(cost->time.drawn(0.9).time(Bytes(1500)).isolated, Duration(22500));
  EXPECT_FALSE(cost->time.drawn(0.9).spread(Bytes(1500)).known());
  // Half of an all-reduce strays by the same shares.
  EXPECT_EQ(costs.find({Collective::AllGather, 2})->time.spread(Bytes(1000)), (Spread{0.8, 1.5}));
}

// 10 us at 1000 bytes and 20 at 2000 leave nothing at 0; a line of 5 us and 1 ns per byte leaves 5 us; a falling start
// leaves the least time; a table that begins at 1 MiB says nothing of latency.
TEST(CostsValueTest, LatencyIsWhatIsLeftAtNoBytes) {
  const std::vector<CollectivePoint> steep = {{Bytes(1000), microseconds(10), {}, {}, {}},
                                              {Bytes(2000), microseconds(20), {}, {}, {}}};
  EXPECT_EQ(CollectiveTable(steep).latency(), Duration{});
  EXPECT_EQ(CollectiveTable(AlphaBeta{microseconds(5), 1}).latency(), microseconds(5));
  const std::vector<CollectivePoint> falling = {{Bytes(1000), microseconds(10), {}, {}, {}},
                                                {Bytes(2000), microseconds(9), {}, {}, {}}};
  EXPECT_EQ(CollectiveTable(falling).latency(), microseconds(9));
  const std::vector<CollectivePoint> large = {{mib(1), microseconds(100), {}, {}, {}},
                                              {mib(2), microseconds(101), {}, {}, {}}};
  EXPECT_EQ(CollectiveTable(large).latency(), Duration{});
}

// The largest rate is 4000 bytes in 20 us, 5 ns a byte: 1000 bytes keep the link busy for 5 of their 10 us, 4000 for all
// of their time. A line moves a byte in 1 ns, whatever its size.
TEST(CostsValueTest, AMessageLoadsTheLinkAsTheLargestRateOfItsTableDoes) {
  const std::vector<CollectivePoint> points = {{Bytes(10), microseconds(9), {}, {}, {}},
                                               {Bytes(1000), microseconds(10), {}, {}, {}},
                                               {Bytes(4000), microseconds(20), {}, {}, {}}};
  const CollectiveTable table(points);
  EXPECT_EQ(table.latency(Bytes(1000)), microseconds(5));
  EXPECT_EQ(table.latency(Bytes(4000)), Duration{});
  EXPECT_EQ(table.scaled(0.5).latency(Bytes(1000)), Duration(2500));
  EXPECT_EQ(CollectiveTable(AlphaBeta{microseconds(5), 1}).latency(mib(64)), microseconds(5));
}

TEST(CostsValueTest, ArePrintedForPeople) {
  std::ostringstream out;
  out << costs_with_spread();
  EXPECT_THAT(out.str(), HasSubstr("costs on two, 1 distinct ranks"));
  EXPECT_THAT(out.str(), HasSubstr("fc  gemm  100 us  p10 x0.9 p90 x1.3"));
  EXPECT_THAT(out.str(), HasSubstr("all-reduce over 2 ranks"));
}

// Each of 8 copies goes to one of 2 nodes: the other is reached but once in 256. Of 8 places one of 2 copies reaches 1.875.
TEST(CostsTest, OfCopiesOneGoesToARankOrANode) {
  const CollectiveKey key{.collective = Collective::AllToAll, .ranks = 16, .nodes = 2};
  const Bytes all(std::int64_t{8} << 20);
  EXPECT_EQ(without_copies(all, 1, key), all);
  EXPECT_NEAR(static_cast<double>(without_copies(all, 8, key).count()), (2 - 2.0 / 256) * (1 << 20),
              1);
  const CollectiveKey in_node{.collective = Collective::AllToAll, .ranks = 8, .nodes = 1};
  EXPECT_NEAR(static_cast<double>(without_copies(all, 2, in_node).count()), 1.875 * (4 << 20), 1);
}

}  // namespace
}  // namespace dovetail::models
