// What collectives take of a GPU: thread blocks by NCCL's rule, memory traffic of a ring, and how slow few blocks are.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/multiprocessors.h"

#include <gmock/gmock.h>

#include <map>

#include "base/error.h"
#include "models/clusters/cluster.h"

namespace dovetail::models {
namespace {

using schedule::Collective;
using ::testing::HasSubstr;

constexpr Multiprocessors kH100 = {
    .count = 132, .ctas = 24, .all_reduce_ctas = 16, .network_ctas = 12};

GpuMessage message(Collective kind, Bytes bytes) {
  return {.kind = kind, .ranks = 8, .nodes = 1, .bytes = bytes};
}

// One for 32 KiB: 1 to 16 KiB, 4 at 128, 16 at 512; then as many as there are channels.
TEST(MultiprocessorsTest, ThreadBlocksAreCountedAsNcclDoes) {
  EXPECT_EQ(kH100.ctas_of(message(Collective::AllReduce, kib(16))), 1);
  EXPECT_EQ(kH100.ctas_of(message(Collective::AllReduce, kib(128))), 4);
  EXPECT_EQ(kH100.ctas_of(message(Collective::AllReduce, mib(25))), 16);
  EXPECT_EQ(kH100.ctas_of(message(Collective::AllGather, mib(25))), 24);
  EXPECT_EQ(kH100.ctas_of(message(Collective::AllToAll, mib(25))), 0);
  GpuMessage wide = message(Collective::AllReduce, mib(25));
  wide.nodes = 2;
  EXPECT_EQ(kH100.ctas_of(wide), 12);
  wide.max_ctas = 4;
  EXPECT_EQ(kH100.ctas_of(wide), 4);
  wide.max_ctas = 100;
  EXPECT_EQ(kH100.ctas_of(wide), 12);
}

// 19 of 24 blocks reach 380 GB/s, so each 20. 7/8 of 80 MB over eight of them: 437.5 us.
TEST(MultiprocessorsTest, FewBlocksAreAsSlowAsTheyAre) {
  Multiprocessors gpu = kH100;
  set_cta_rates(gpu, BytesPerSecond(380e9), BytesPerSecond(380e9));
  GpuMessage gather = message(Collective::AllGather, Bytes(80'000'000));
  EXPECT_EQ(gpu.least_time(gather), Duration{});  // its own choice
  gather.max_ctas = 8;
  EXPECT_NEAR(to_us(gpu.least_time(gather)), 437.5, 0.01);
  EXPECT_EQ(kH100.least_time(gather), Duration{});  // nothing is known
}

// Published times of DeepEP on H100 with so many multiprocessors, relative to 24.
TEST(MultiprocessorsTest, TheShapeIsThatOfPublicTimes) {
  Multiprocessors gpu = kH100;
  set_cta_rates(gpu, BytesPerSecond(100e9), BytesPerSecond(100e9));
  GpuMessage gather = message(Collective::AllGather, Bytes(80'000'000));
  const Duration whole = from_us(700);  // 7/8 of 80 MB at 100 GB/s
  for (const auto& [ctas, relative] :
       std::map<std::int32_t, double>{{4, 4.60}, {8, 2.38}, {12, 1.62}, {16, 1.24}, {20, 1.06}}) {
    gather.max_ctas = ctas;
    const Duration time = std::max(whole, gpu.least_time(gather));
    EXPECT_NEAR(to_us(time) / to_us(whole) / relative, 1, 0.06) << ctas;
  }
}

// 7/8 of 80 MB in 700 us are 100 GB/s: gathered, 200 GB/s of 0.8 x 1000.
TEST(MultiprocessorsTest, BytesOfTheBusAreReadAndWrittenInMemory) {
  Multiprocessors gpu = kH100;
  const auto share = [&gpu](Collective kind) {
    return gpu.memory_share(message(kind, Bytes(80'000'000)), from_us(700));
  };
  EXPECT_EQ(share(Collective::AllGather), 0);
  gpu.memory = BytesPerSecond(1e12);
  EXPECT_NEAR(share(Collective::AllGather), 0.25, 1e-9);
  EXPECT_NEAR(share(Collective::ReduceScatter), 0.375, 1e-9);
  EXPECT_NEAR(share(Collective::AllReduce), 0.625, 1e-9);  // twice the bytes
}

Cluster machine_with(const std::string& contention) {
  return parse_cluster(
      "machine.json",
      R"({"schema": "dovetail.cluster/1", "kind": "cluster", "name": "one", "collectives": [
    {"collective": "all-reduce", "ranks": 2, "alpha_us": 1, "beta_ns_per_byte": 1}],
    "compute": {"gemm": {"flop_per_s": {"f32": 1e13}, "efficiency": 1}, "memory_bytes_per_s": 2e12},
    "contention": )" +
          contention + "}");
}

TEST(MultiprocessorsTest, AMachineFileHasThemInPlaceOfSlowDowns) {
  const Cluster cluster = machine_with(R"({"multiprocessors": {"count": 108, "ctas": 24}})");
  ASSERT_TRUE(cluster.contention.multiprocessors.has_value());
  EXPECT_EQ(cluster.contention.multiprocessors->network_ctas, 24);
  EXPECT_EQ(parse_cluster("again.json", cluster_to_json(cluster)), cluster);
  const Cluster delayed =
      machine_with(R"({"multiprocessors": {"count": 108, "ctas": 24}, "start_delay_us": 120})");
  EXPECT_EQ(delayed.contention.start_delay, from_us(120));
  EXPECT_EQ(parse_cluster("again.json", cluster_to_json(delayed)), delayed);
  try {
    static_cast<void>(machine_with(
        R"({"compute_slowdown": 1.2, "multiprocessors": {"count": 108, "ctas": 24}})"));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected no slow-downs beside it"));
  }
}

// Memory from the compute section, the rate of a block from the bus of a node: 24 blocks reach 230 GB/s with 19.
TEST(MultiprocessorsTest, CostsTakeTheRestFromTheMachine) {
  const Cluster a100 = load_cluster("a100x8", DOVETAIL_SOURCE_DIR "/models/clusters");
  schedule::Program program;
  program.world_size = 8;
  const Costs costs = costs_for(a100, program);
  const auto& gpu = costs.contention(Rank{0}).multiprocessors;
  ASSERT_TRUE(gpu.has_value());
  EXPECT_EQ(gpu->memory->count(), 2.039e12);
  ASSERT_TRUE(gpu->cta_rate.has_value());
  EXPECT_NEAR(gpu->cta_rate->count(), a100.topology->node().rate.count() / 19, 1);
}

}  // namespace
}  // namespace dovetail::models
