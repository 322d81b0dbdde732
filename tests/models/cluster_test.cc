// Cluster files: reading, writing, finding, and the ones that we ship.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/cluster.h"

#include "base/error.h"
#include "models/clusters/gpu_book.h"
#include "tests/models/small_cluster.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::models {
namespace {

using dovetail::testing::error_of;
using schedule::Collective;
using schedule::DType;
using schedule::GemmWork;
using schedule::MemoryWork;
using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ------------------------------------------------------------------------------------- files

Cluster every_section() {
  Cluster cluster = small_cluster();
  cluster.origin = "measured here";
  cluster.licence = "ours";
  cluster.date = "2025-01-31";
  cluster.notes = {{"link", "shaped to 1 Gbit/s"}, {"why/not", "a slash in a key"}};
  cluster.backend = BackendKind::Cpu;
  auto& points = std::get<std::vector<CollectivePoint>>(cluster.collectives[0].times);
  points[1].back_to_back = Duration(18001);
  points[1].p10 = Duration(17003);
  points[1].p90 = Duration(23007);
  cluster.collectives.push_back({.collective = Collective::AllGather,
                                 .ranks = 2,
                                 .nodes = 2,
                                 .times = AlphaBeta{microseconds(20), 0.1},
                                 .origin = "somebody"});
  cluster.topology = Topology{
      .gpu = NcclGpu::Blackwell,
      .levels = {{.link = "nvlink3",
                  .ranks = 2,
                  .rate = BytesPerSecond(2e11),
                  .all_reduce_rate = BytesPerSecond(3e11),
                  .hop = Duration(3400)},
                 {.link = "efa",
                  .ranks = 64,
                  .rate = BytesPerSecond(5e10),
                  .hop = Duration(20500),
                  .start = microseconds(100),
                  .block = microseconds(41)},
                 {.link = "a spine", .rate = BytesPerSecond(2.5e10), .hop = Duration(22500)}}};
  cluster.kernels = {{DType::F32, GemmWork{64, 256, 784, 3}, Duration(12345), Duration(12000), {}},
                     {DType::BF16, MemoryWork{Bytes(4096), Flop(7)}, Duration(999), {}, {}}};
  cluster.unit_kernel = UnitKernel{DType::F32, GemmWork{96, 96, 96}, Duration(10500)};
  cluster.copy = CopyModel{Duration(1500), 1.0 / 3};
  cluster.host = {.kind = HostModel::Kind::Inline, .event = Duration(250)};
  cluster.contention = {.compute_slowdown = 1.25,
                        .collective_slowdown = 1.5,
                        .collective_cpu = microseconds(40),
                        .gemm_slowdown = 1.19,
                        .memory_slowdown = 1.02,
                        .collective_gemm_slowdown = 2.25,
                        .collective_memory_slowdown = 1.1,
                        .start_delay = microseconds(150)};
  cluster.quality = Quality{.valid = false,
                            .why = {"steal above 2 %"},
                            .outside_cpu = 0.01,
                            .steal = 0.03,
                            .fit_residual = 0.1,
                            .figures = {{"rounds", 9}}};
  return cluster;
}

TEST(ClusterJsonTest, ReadsBackWhatItWrote) {
  const Cluster cluster = every_section();
  EXPECT_EQ(parse_cluster("x.json", cluster_to_json(cluster)), cluster);
}

TEST(ClusterJsonTest, WritesTheSameTextAgain) {
  const std::string text = cluster_to_json(every_section());
  EXPECT_EQ(cluster_to_json(parse_cluster("x.json", text)), text);
}

TEST(ClusterJsonTest, ReadsBackTheShippedFiles) {
  for (const std::string& name : cluster_names(kClusters)) {
    const Cluster cluster = load_cluster(name, kClusters);
    EXPECT_EQ(parse_cluster(name, cluster_to_json(cluster)), cluster) << name;
  }
}

TEST(ClusterJsonTest, TakesDefaultsForAbsentSections) {
  const Cluster cluster = parse_cluster("x.json", R"({
    "schema": "dovetail.cluster/1", "kind": "cluster", "name": "line",
    "collectives": [{"collective": "all-reduce", "ranks": 4,
                     "alpha_us": 20, "beta_ns_per_byte": 0.5}]})");
  Cluster expected;
  expected.name = "line";
  expected.ranks = 4;
  expected.collectives = {
      {.collective = Collective::AllReduce, .ranks = 4, .times = AlphaBeta{microseconds(20), 0.5}}};
  expected.host = default_host(BackendKind::Cuda);
  EXPECT_EQ(cluster, expected);
  EXPECT_EQ(cluster.host.launch_latency, microseconds(7));
}

TEST(ClusterJsonTest, TheCpuBackendIssuesInline) {
  const Cluster cluster = parse_cluster("x.json", R"({
    "schema": "dovetail.cluster/1", "kind": "cluster", "name": "cpu", "backend": "cpu",
    "collectives": [], "host": {"event_us": 2}})");
  EXPECT_EQ(cluster.host.kind, HostModel::Kind::Inline);
  EXPECT_EQ(cluster.host.event, microseconds(2));
  EXPECT_EQ(cluster.host.run_op, Duration(0));
}

TEST(ClusterJsonTest, ReadsACopyRateAsTimePerByte) {
  const Cluster cluster = parse_cluster("x.json", R"({
    "schema": "dovetail.cluster/1", "kind": "cluster", "name": "copy", "collectives": [],
    "copy": {"bytes_per_s": 4e9, "fixed_us": 2}})");
  // Expectation: 4 GB/s is 0.25 ns per byte.
  EXPECT_EQ(cluster.copy, (CopyModel{microseconds(2), 0.25}));
}

// Each broken file, and what its message must hold.
struct Broken {
  const char* what;
  const char* from;  // this text of a good file
  const char* to;    // becomes this
  const char* message;
};

const char* const kGood = R"({
  "schema": "dovetail.cluster/1", "kind": "cluster", "name": "good", "ranks": 8,
  "collectives": [{"collective": "all-reduce", "ranks": 8, "points": [
    {"bytes": 1000, "isolated_us": 10}, {"bytes": 2000, "isolated_us": 20}]}],
  "compute": {"gemm": {"flop_per_s": {"f32": 1e12}, "efficiency": 0.5},
              "memory_bytes_per_s": 1e12},
  "kernels": [{"dtype": "f32", "gemm": {"m": 1, "n": 2, "k": 3}, "us": 4}],
  "copy": {"ns_per_byte": 1}, "contention": {"compute_slowdown": 1.5},
  "quality": {"valid": true}})";

class BrokenClusterTest : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenClusterTest, IsRefusedWithFilePlaceAndExpectation) {
  std::string text = kGood;
  ASSERT_EQ(error_of([&] { parse_cluster("bad.json", text); }), "");
  const auto place = text.find(GetParam().from);
  ASSERT_NE(place, std::string::npos);
  text.replace(place, std::string(GetParam().from).size(), GetParam().to);
  const std::string message = error_of([&] { parse_cluster("bad.json", text); });
  EXPECT_THAT(message, ::testing::StartsWith("bad.json: "));
  EXPECT_THAT(message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenClusterTest,
    ::testing::Values(
        Broken{"WrongSchema", "cluster/1", "cluster/2",
               "/schema: expected \"dovetail.cluster/1\", found \"dovetail.cluster/2\""},
        Broken{"WrongKind", "\"cluster\"", "\"plan\"", "/kind: expected one of \"cluster\""},
        Broken{"NoName", "\"good\"", "\"\"", "/name: expected a name"},
        Broken{"UnknownKey", "\"contention\"", "\"contension\"",
               "/contension: unknown key; did you mean \"contention\"?"},
        Broken{"NoRanks", "\"ranks\": 8,", "\"ranks\": 0,",
               "/ranks: expected an integer from 1 to 16777216, found 0"},
        Broken{"NoRanksOfATable", "\"ranks\": 8, \"points\"", "\"ranks\": 0, \"points\"",
               "/collectives/0/ranks: expected an integer from 1"},
        Broken{"WrongType", "\"isolated_us\": 10", "\"isolated_us\": \"fast\"",
               "/collectives/0/points/0/isolated_us: expected a number"},
        Broken{"FractionOfAByte", "\"bytes\": 1000", "\"bytes\": 1000.5",
               "/collectives/0/points/0/bytes: expected an integer"},
        Broken{"NegativeSize", "\"bytes\": 1000", "\"bytes\": -1000",
               "/collectives/0/points/0/bytes: expected an integer from 1"},
        Broken{"NegativeTime", "\"isolated_us\": 20", "\"isolated_us\": -20",
               "/collectives/0/points/1/isolated_us: expected a number from 0.001"},
        Broken{"NoTime", "\"isolated_us\": 20", "\"isolated_us\": 0",
               "/collectives/0/points/1/isolated_us: expected a number from 0.001"},
        Broken{"NotANumber", "\"isolated_us\": 20", "\"isolated_us\": NaN", "not valid JSON"},
        Broken{"NullTime", "\"isolated_us\": 20", "\"isolated_us\": null",
               "/collectives/0/points/1/isolated_us: expected a number from 0.001 to"},
        Broken{"RepeatedSize", "\"bytes\": 2000", "\"bytes\": 1000",
               "/collectives/0/points/1/bytes: expected more than the size before it, 1000"},
        Broken{"FallingSizes", "\"bytes\": 2000", "\"bytes\": 500",
               "/collectives/0/points/1/bytes: expected more than the size before it, 1000 (sizes "
               "rise, each stands once), found 500"},
        Broken{"OnePoint", ", {\"bytes\": 2000, \"isolated_us\": 20}", "",
               "/collectives/0/points: expected at least 2 points, found 1"},
        Broken{"NeitherForm", "\"points\": [", "\"point\": [",
               "/collectives/0: expected \"points\", or \"alpha_us\""},
        Broken{"BothForms", "\"points\": [", "\"alpha_us\": 1, \"points\": [",
               "/collectives/0/alpha_us: unknown key"},
        Broken{"UnknownCollective", "all-reduce", "allreduce",
               "/collectives/0/collective: expected one of \"all-reduce\", \"reduce-scatter\""},
        Broken{"NoCollectives", "\"collectives\"", "\"colectives\"",
               "/colectives: unknown key; did you mean \"collectives\"?"},
        Broken{"SecondTable", "\"collectives\": [",
               "\"collectives\": [{\"collective\": \"all-reduce\", \"ranks\": 8, \"alpha_us\": 1, "
               "\"beta_ns_per_byte\": 1}, ",
               "/collectives/1: expected one table of all-reduce over 8 ranks, found a second"},
        Broken{"UnknownDtype", "{\"f32\": 1e12}", "{\"fp32\": 1e12}",
               "/compute/gemm/flop_per_s/fp32: unknown key; did you mean \"f32\"?"},
        Broken{"TooEfficient", "\"efficiency\": 0.5", "\"efficiency\": 1.5",
               "/compute/gemm/efficiency: expected a number from"},
        Broken{"NoMemoryRate", "\"memory_bytes_per_s\": 1e12", "\"memory_bytes_per_s\": 0",
               "/compute/memory_bytes_per_s: expected a number from 1"},
        Broken{"EmptyGemm", "\"m\": 1", "\"m\": 0",
               "/kernels/0/gemm/m: expected an integer from 1"},
        Broken{"NoWork", "\"gemm\": {\"m\": 1, \"n\": 2, \"k\": 3}, ", "",
               "/kernels/0: expected \"gemm\", \"memory\" or \"kernels\", found none of them"},
        Broken{"NoKernelOfSeveral", "\"gemm\": {\"m\": 1, \"n\": 2, \"k\": 3}", "\"kernels\": []",
               "/kernels/0/kernels: expected at least one kernel, found none"},
        Broken{"NoWorkOfSeveral", "\"gemm\": {\"m\": 1, \"n\": 2, \"k\": 3}", "\"kernels\": [{}]",
               "/kernels/0/kernels/0: expected \"gemm\" or \"memory\", found neither"},
        Broken{"SameKernelTwice", "\"kernels\": [",
               "\"kernels\": [{\"dtype\": \"f32\", \"gemm\": {\"m\": 1, \"n\": 2, \"k\": 3, "
               "\"count\": 1}, \"us\": 5}, ",
               "/kernels/1: expected each kernel once"},
        Broken{"CopyWithoutRate", "\"ns_per_byte\": 1", "\"fixed_us\": 1",
               "/copy: expected \"bytes_per_s\" or \"ns_per_byte\""},
        Broken{"SpeedUp", "\"compute_slowdown\": 1.5", "\"compute_slowdown\": 0.5",
               "/contention/compute_slowdown: expected a number from 1"},
        Broken{"NumberForBool", "\"valid\": true", "\"valid\": 1",
               "/quality/valid: expected true or false, found 1"},
        Broken{"Truncated", "\"quality\": {\"valid\": true}}", "\"quality\"", "not valid JSON"}),
    [](const auto& test) { return std::string(test.param.what); });

TEST(ClusterJsonTest, ReadsPassesByKind) {
  const Cluster cluster = parse_cluster(
      "x.json",
      R"({"schema": "dovetail.cluster/1", "kind": "cluster", "name": "x", "collectives": [],
          "passes": {"accumulate": {"ns_per_byte": 0.5}, "scale": {"ns_per_byte": 1, "fixed_us": 2}}})");
  const std::map<PassKind, PassModel> expected = {
      {PassKind::Accumulate, {.fixed = {}, .ns_per_byte = 0.5}},
      {PassKind::Scale, {.fixed = Duration(2000), .ns_per_byte = 1}}};
  EXPECT_EQ(cluster.passes, expected);
  EXPECT_EQ(parse_cluster("x.json", cluster_to_json(cluster)), cluster);
}

TEST(ClusterJsonTest, TheSkewIsAShareOfAtLeastZero) {
  const auto with_skew = [](const std::string& skew) {
    return parse_cluster("x.json", R"({"schema": "dovetail.cluster/1", "kind": "cluster",
        "name": "x", "collectives": [], "skew": )" +
                                       skew + "}");
  };
  EXPECT_EQ(with_skew("0.25").skew, 0.25);
  EXPECT_EQ(parse_cluster("x.json", cluster_to_json(with_skew("0.25"))).skew, 0.25);
  EXPECT_THAT(error_of([&] { with_skew("-0.1"); }), HasSubstr("x.json: /skew: expected a number"));
}

TEST(ClusterJsonTest, TheNetworkShieldIsATimeThatMayBeAbsent) {
  Cluster cluster;
  cluster.name = "x";
  EXPECT_THAT(cluster_to_json(cluster), ::testing::Not(HasSubstr("network_shield")));
  cluster.network_shield = std::chrono::milliseconds(26);
  EXPECT_EQ(parse_cluster("x.json", cluster_to_json(cluster)).network_shield,
            cluster.network_shield);
}

TEST(LoadClusterTest, NamesTheMissingFile) {
  EXPECT_THAT(error_of([] { load_cluster("./absent.json", kClusters); }),
              HasSubstr("./absent.json: cannot be read"));
}

TEST(LoadClusterTest, ProposesTheNearestName) {
  EXPECT_THAT(error_of([] { load_cluster("mi300x9", kClusters); }),
              HasSubstr("cluster \"mi300x9\": no such cluster; did you mean \"mi300x8\"?; known: "
                        "a100xN, a100x16_ib, a100x2_nv12, a100x4_pcie, a100x8, "));
}

TEST(LoadClusterTest, SaysWhereItLookedWhenThereAreNone) {
  EXPECT_THAT(cluster_names("/nowhere/at/all"), IsEmpty());
  EXPECT_THAT(error_of([] { load_cluster("a100x8", "/nowhere/at/all"); }),
              HasSubstr("no such cluster; there are none in /nowhere/at/all"));
}

TEST(ClusterFilesTest, PeopleWriteNamesInOtherWays) {
  for (const char* const name : {"H100x64", "64xh100", "64xH100"})
    EXPECT_EQ(load_cluster(name, kClusters).name, "h100x64");
  EXPECT_EQ(load_cluster("A100x16_IB", kClusters).name, "a100x16_ib");
  EXPECT_THAT(error_of([] { load_cluster("8xh101", kClusters); }),
              HasSubstr("\"8xh101\": no such cluster"));
  EXPECT_THAT(error_of([] { load_cluster("H800x8", kClusters); }), HasSubstr("NVLink at 400 GB/s"));
  EXPECT_THAT(error_of([] { load_cluster("h20", kClusters); }), HasSubstr("148 TFLOP/s"));
  EXPECT_THAT(error_of([] { load_cluster("h200x9", kClusters); }), HasSubstr("whole nodes"));
}

TEST(LoadClusterTest, ReadsAFileThatWasSaved) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("dovetail_cluster_test_" + std::to_string(::getpid()) + ".json");
  save_cluster(every_section(), path.string());
  const Cluster loaded = load_cluster(path.string(), kClusters);
  std::filesystem::remove(path);
  EXPECT_EQ(loaded, every_section());
}

// ----------------------------------------------------------------------------------- shipped

TEST(ShippedClustersTest, AreThoseThatTheImportersWrite) {
  EXPECT_THAT(
      cluster_names(kClusters),
      ElementsAre("a100", "a100x16_ib", "a100x2_nv12", "a100x4_pcie", "a100x8", "b200",
                  "b200x16_roce", "b200x32_efa", "b200x8", "b300", "gb200", "gb300", "h100",
                  "h100_96gb_500w", "h100_efa", "h100x16_tcpx", "h100x16_tcpxo", "h200",
                  "h200_nodes_of_4", "h200x8", "l40s", "mi300x16", "mi300x8", "rtx_pro_6000"));
}

TEST(ShippedClustersTest, SayWhereTheyComeFrom) {
  for (const std::string& name : cluster_names(kClusters)) {
    const Cluster cluster = load_cluster(name, kClusters);
    EXPECT_EQ(cluster.name, name);
    EXPECT_THAT(cluster.origin, HasSubstr("github.com/")) << name;
    EXPECT_THAT(cluster.licence, HasSubstr("no text reproduced")) << name;
    EXPECT_THAT(cluster.notes.at("compute"), HasSubstr("uncalibrated")) << name;
    EXPECT_THAT(cluster.notes.at("contention"),
                HasSubstr(cluster.contention.multiprocessors ? "derived, not measured"
                                                             : "arXiv 2507.03114"))
        << name;
  }
}

TEST(ShippedClustersTest, AllReduceTimesRiseFromOneTo512MiB) {
  for (const std::string& name : cluster_names(kClusters)) {
    const Cluster cluster = load_cluster(name, kClusters);
    const auto hull =
        collective_table(cluster, {Collective::AllReduce, cluster.ranks}).hull(TimeKind::Smaller);
    Duration previous{};
    for (Bytes bytes = mib(1); bytes <= mib(512); bytes = bytes * 2) {
      EXPECT_GE(evaluate(hull, bytes), previous) << name << " at " << bytes;
      previous = evaluate(hull, bytes);
    }
    // 512 times the bytes: the flattest curve (32 ranks over EFA) takes eight times as long.
    EXPECT_GT(previous, evaluate(hull, mib(1)) * 8) << name;
  }
}

// ------------------------------------------------------------------------------------ a GPU's own book

// Python's measurement knows what an op takes to be issued, and nothing of collectives: default_host has 15 us.
TEST(ClusterTest, WhatABookDoesNotSayOfTheHostIsThatOfAnyHost) {
  const auto path =
      std::filesystem::path(::testing::TempDir()) / ("book-" + std::to_string(getpid()) + ".json");
  const auto book = [&](const std::string& host) {
    std::ofstream(path)
        << R"({"schema": "dovetail.gpu/1", "kind": "gpu", "name": "mine", "device": "h100")" +
               host + "}";
    const GpuBook read = load_gpu_book(path.string());
    std::filesystem::remove(path);
    return read;
  };
  HostModel expected = default_host(BackendKind::Cuda);
  expected.run_op = from_us(48);
  expected.backward_op = from_us(24);
  EXPECT_EQ(book(R"(, "host": {"kind": "async", "run_op_us": 48, "backward_op_us": 24})").host,
            expected);
  EXPECT_EQ(book("").host, std::nullopt);
}

}  // namespace
}  // namespace dovetail::models
