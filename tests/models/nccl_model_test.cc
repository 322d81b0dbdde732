// NCCL's estimate, held against what NCCL itself printed and against its formulas by hand.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/nccl_model.h"

#include <gtest/gtest.h>

namespace dovetail::models {
namespace {

using schedule::Collective;

// Rates that no limit of NCCL's small messages depends on.
NcclSystem hopper() {
  return {.gpu = NcclGpu::Hopper,
          .node_rate = BytesPerSecond(3.6e11),
          .nvls_rate = BytesPerSecond(4.8e11),
          .network_rate = BytesPerSecond(4.8e10)};
}

// NVIDIA/nccl#1453, 3 nodes of 8 H100.
TEST(NcclModelTest, MeetsWhatNcclPrintedOnThreeNodes) {
  const CollectiveKey key{Collective::AllReduce, 24, 3};
  const NcclChoice small = nccl_choice(hopper(), key, kib(4));
  // 6.8 us + 2 (7 hops of 0.6 us + 1 of 5 us) = 25.2 us; 20.4 GB/s * 0.85 / 2 * 0.7 = 6.069 GB/s.
  EXPECT_EQ(small.algorithm, NcclAlgorithm::Tree);
  EXPECT_EQ(small.protocol, NcclProtocol::Ll);
  EXPECT_NEAR(small.us, 25.8749, 0.00005);
  EXPECT_NEAR(nccl_choice(hopper(), key, kib(8)).us, 26.5498, 0.00005);
}

TEST(NcclModelTest, ChoosesRingsAndSwitchesInANode) {
  const CollectiveKey key{Collective::AllReduce, 8, 1};
  // Ring LL: 6.6 us + 14 hops of 0.6 us, 16 KiB * 14 / 8 at 141 GB/s: 15 + 0.203 us.
  const NcclChoice small = nccl_choice(hopper(), key, kib(16));
  EXPECT_EQ(small.algorithm, NcclAlgorithm::Ring);
  EXPECT_EQ(small.protocol, NcclProtocol::Ll);
  EXPECT_NEAR(small.us, 15.203, 0.001);
  // NVLS: 25 us and 256 MiB * 14 / 8 at 480 GB/s.
  const NcclChoice large = nccl_choice(hopper(), key, mib(256));
  EXPECT_EQ(large.algorithm, NcclAlgorithm::Nvls);
  EXPECT_NEAR(large.us, 25 + 978.67, 0.01);
  // Two ranks have no use for a switch that adds up.
  EXPECT_EQ(nccl_choice(hopper(), {Collective::AllReduce, 2, 1}, mib(256)).algorithm,
            NcclAlgorithm::Ring);
}

TEST(NcclModelTest, GathersWithOneRankOnEachNodeGoByLogarithms) {
  // PAT: 8 us + 3 (14 us) / 3.5 + 8 * 2.8 us, 64 MiB at 0.75 * 48 GB/s.
  NcclSystem system = hopper();
  system.ll128_between_nodes = false;
  const CollectiveKey key{Collective::AllGather, 8, 8};
  const NcclChoice choice = nccl_choice(system, key, kib(256));
  EXPECT_EQ(choice.algorithm, NcclAlgorithm::Pat);
  EXPECT_NEAR(choice.us, 8 + 12 + 22.4 + 262144 / 36e3, 0.01);
}

TEST(NcclModelTest, ACurveNeverFallsAndStandsForTheEstimate) {
  for (const std::int64_t nodes : {1, 2, 4, 64}) {
    const CollectiveKey key{Collective::AllReduce, 8 * nodes, nodes};
    const CollectiveTable curve = nccl_curve(hopper(), key);
    Duration before{};
    for (Bytes bytes(1); bytes <= gib(64); bytes = bytes * 2) {
      const Duration time = curve.time(bytes).isolated;
      EXPECT_GE(time, before) << nodes << ' ' << bytes;
      EXPECT_GE(to_us(time) * 1.0001, nccl_choice(hopper(), key, bytes).us)
          << nodes << ' ' << bytes;
      before = time;
    }
    EXPECT_NEAR(to_us(curve.time(gib(64)).isolated) / nccl_choice(hopper(), key, gib(64)).us, 1,
                0.01);
  }
}

}  // namespace
}  // namespace dovetail::models
