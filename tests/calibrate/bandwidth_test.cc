// Bus bandwidth, and the shipped system beside which it stands.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/bandwidth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

namespace dovetail::calibrate {
namespace {

using exec::selftest::Verdict;
using ::testing::HasSubstr;

const std::string kClusters = DOVETAIL_SOURCE_DIR "/models/clusters";

std::vector<std::string> names_like(const GpuSystem& system) {
  std::vector<std::string> names;
  for (const models::Cluster& cluster : shipped_like(system, kClusters))
    names.push_back(cluster.name);
  return names;
}

TEST(BandwidthTest, ASystemIsFoundByGpuRanksAndHosts) {
  EXPECT_THAT(names_like({.gpu = "NVIDIA A100-SXM4-80GB", .ranks = 8, .hosts = 1}),
              ::testing::ElementsAre("a100x8"));
  EXPECT_THAT(names_like({.gpu = "NVIDIA H200", .ranks = 8, .hosts = 1}),
              ::testing::ElementsAre("h200x8"));
  EXPECT_THAT(names_like({.gpu = "NVIDIA H200", .ranks = 8, .hosts = 2}), ::testing::IsEmpty());
  EXPECT_THAT(names_like({.gpu = "NVIDIA A10", .ranks = 8, .hosts = 1}), ::testing::IsEmpty());
}

// 64 MiB over 8 ranks in 1 ms: 2 * 7/8 * 67.1 MB / 1 ms.
TEST(BandwidthTest, IsWhatNcclTestsCallsBusBandwidth) {
  EXPECT_NEAR(bus_bandwidth(mib(64), from_us(1000), 8), 117.44, 0.01);
}

TEST(BandwidthTest, HalfOfWhatWasPublishedIsAFault) {
  const GpuSystem system = {.gpu = "NVIDIA A100-SXM4-80GB", .ranks = 8, .hosts = 1};
  const std::vector<models::Cluster> shipped = shipped_like(system, kClusters);
  ASSERT_EQ(shipped.size(), 1u);
  const Duration there =
      collective_table(shipped[0], {schedule::Collective::AllReduce, 8}).time(mib(64)).isolated;
  const auto rows_at = [&](Duration time) {
    const models::CollectivePoint size = {.bytes = mib(64), .isolated = time};
    return bandwidth_rows(std::span(&size, 1), system, shipped);
  };
  EXPECT_EQ(rows_at(there).at(0).verdict, Verdict::Pass);
  EXPECT_THAT(rows_at(there).at(0).detail, HasSubstr("; a100x8: "));
  const exec::selftest::Row slow = rows_at(3 * there).at(0);
  EXPECT_EQ(slow.verdict, Verdict::Fail);
  EXPECT_THAT(slow.detail, HasSubstr("below half"));
}

TEST(BandwidthTest, AnEmulatedDeviceHasNone) {
  const models::CollectivePoint size = {.bytes = mib(64), .isolated = from_us(1)};
  const auto rows = bandwidth_rows(std::span(&size, 1), {.gpu = "EMULATED", .ranks = 2}, {});
  EXPECT_EQ(rows.at(0).verdict, Verdict::Skipped);
}

}  // namespace
}  // namespace dovetail::calibrate
