// Estimates of all-reduces of sizes that nobody measured: what holds in any case, lines that are known, and how often the
// interval holds what real machines took.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/collective_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/clusters/cluster.h"

namespace dovetail::models {
namespace {

using Sized = CollectiveEstimate::Sized;

const std::string kMeasuredClusters = std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters";

Duration us(double n) { return from_us(n); }

// Latency and 2.5 ms for each 8 MiB.
Duration on_line(double latency_us, Bytes bytes) {
  return us(latency_us + 2500.0 * static_cast<double>(bytes.count()) / (8 << 20));
}

bool holds(const EstimatedTime& estimate, Duration truth) {
  return estimate.low <= truth && truth <= estimate.high;
}

TEST(CollectiveEstimateTest, AMeasuredSizeTakesWhatWasMeasured) {
  const CollectiveEstimate estimate({{mib(4), us(1750)}, {mib(8), us(3000)}}, 8);
  EXPECT_EQ(estimate.at(mib(8)), (EstimatedTime{mib(8), us(3000), us(3000), us(3000)}));
}

// Whatever the latency, one, two or three sizes of 4, 8, 12 MiB: all sizes from 4 KiB to 1 GiB lie inside.
TEST(CollectiveEstimateTest, TheIntervalHoldsEveryLineOfLatencyAndBandwidth) {
  for (const double latency : {5.0, 20.0, 500.0, 1500.0, 20000.0}) {
    for (const std::vector<Bytes>& sizes : {std::vector<Bytes>{mib(8)},
                                            {mib(4), mib(8)},
                                            {mib(4), mib(8), mib(12)},
                                            {kib(64), mib(8)}}) {
      std::vector<Sized> measured;
      for (const Bytes size : sizes) measured.emplace_back(size, on_line(latency, size));
      const CollectiveEstimate estimate(measured, 8);
      for (Bytes size = kib(4); size <= gib(1); size = size * 2) {
        EXPECT_TRUE(holds(estimate.at(size), on_line(latency, size)))
            << latency << " us, " << sizes.size() << " sizes, " << size;
      }
    }
  }
}

// Two sizes tell latency and bandwidth: 0.5 ms and 0.3125 ms a MiB, so 24 MiB take 8 ms.
TEST(CollectiveEstimateTest, TwoSizesGiveTheLineThroughThem) {
  const CollectiveEstimate estimate({{mib(4), us(1750)}, {mib(12), us(4250)}}, 8);
  EXPECT_NEAR(to_us(estimate.at(mib(24)).time), 8000, 0.1);
  EXPECT_NEAR(to_us(estimate.at(kib(512)).time), 656.25, 0.1);
}

// One size of 8 MiB in 3 ms: twice the size takes from as long, but for what 1 TB/s need for the rest (8 MiB x 1.75: 14.7 us),
// to twice as long; a quarter from a quarter to as long.
TEST(CollectiveEstimateTest, OneSizeSaysWhatHoldsForAnyLine) {
  const CollectiveEstimate estimate({{mib(8), us(3000)}}, 8);
  const EstimatedTime twice = estimate.at(mib(16));
  EXPECT_NEAR(to_us(twice.low), 3014.7, 0.1);
  EXPECT_NEAR(to_us(twice.high), 6000 * 1.03, 0.1);
  const EstimatedTime quarter = estimate.at(mib(2));
  EXPECT_NEAR(to_us(quarter.low), 750 * 0.97, 0.1);
  EXPECT_NEAR(to_us(quarter.high), 3000 * 1.03, 0.1);
  // Half of what 4 KiB took by what is measured, and never less than 5 us: 8 MiB within 100 us as on NVLink.
  EXPECT_EQ(CollectiveEstimate({{mib(8), us(100)}}, 8).at(kib(4)).low, us(5));
}

TEST(CollectiveEstimateTest, TheIntervalWidensWithTheDistance) {
  for (const std::vector<Sized>& measured :
       {std::vector<Sized>{{mib(8), us(3000)}}, {{mib(4), us(1750)}, {mib(12), us(4250)}}}) {
    const CollectiveEstimate estimate(measured, 8);
    double before = 0;
    for (Bytes size = mib(16); size <= gib(1); size = size * 2) {
      const EstimatedTime now = estimate.at(size);
      const double width = to_us(now.high - now.low) / to_us(now.time);
      EXPECT_GE(width, before - 1e-6) << size;
      before = width;
    }
  }
}

// Sizes so close that their slope is noise: what is said of one size still bounds it.
TEST(CollectiveEstimateTest, TwoSizesThatAreNearlyOneSayLittle) {
  const CollectiveEstimate estimate({{Bytes(8'000'000), us(3000)}, {Bytes(8'000'001), us(3000)}},
                                    8);
  const EstimatedTime far = estimate.at(Bytes(64'000'000));
  EXPECT_LE(far.low, us(3300));
  EXPECT_GE(far.high, us(20000));
}

TEST(CollectiveEstimateTest, ATableGoesDownTo4KiBAndBeyondTheLargest) {
  const CollectiveEstimate estimate({{mib(4), us(1750)}, {mib(12), us(4250)}}, 8);
  const std::vector<EstimatedTime> estimates = estimate.outside(mib(100));
  ASSERT_FALSE(estimates.empty());
  EXPECT_EQ(estimates.front().bytes, kib(4));
  EXPECT_GE(estimates.back().bytes, mib(100));
  EXPECT_TRUE(std::ranges::is_sorted(estimates, {}, &EstimatedTime::bytes));
  // Twice at least, so that what follows goes on with the line.
  EXPECT_EQ(CollectiveEstimate({{mib(4), us(1750)}}, 8).outside(Bytes(1)).back().bytes, mib(16));
}

// From windows of one to four neighbouring sizes of 256 KiB to 256 MiB, all sizes up to 64 times away.
TEST(CollectiveEstimateTest, NineOfTenTimesOfRealMachinesLieInside) {
  std::size_t all = 0;
  std::size_t inside = 0;
  std::size_t machines = 0;
  for (const char* name :
       {"a100x16_ib", "a100x2_nv12", "a100x4_pcie", "a100x8", "b200x16_roce", "b200x32_efa",
        "b200x8", "h100x16_tcpxo", "h200x8", "mi300x16", "mi300x8"}) {
    const Cluster cluster = load_cluster(name, kMeasuredClusters);
    const auto table = std::ranges::find(cluster.collectives, schedule::Collective::AllReduce,
                                         &CollectiveSeries::collective);
    ASSERT_NE(table, cluster.collectives.end()) << name;
    std::vector<Sized> points;
    for (const CollectivePoint& point : std::get<std::vector<CollectivePoint>>(table->times)) {
      if (point.bytes >= kib(4) && point.bytes <= gib(1))
        points.emplace_back(point.bytes, point.isolated);
    }
    std::size_t of_this = 0;
    std::size_t inside_this = 0;
    for (std::size_t count = 1; count <= 4; ++count) {
      for (std::size_t i = 0; i + count <= points.size(); ++i) {
        const std::vector<Sized> seen(points.begin() + static_cast<std::ptrdiff_t>(i),
                                      points.begin() + static_cast<std::ptrdiff_t>(i + count));
        if (seen.front().first < kib(256) || seen.back().first > mib(256)) continue;
        const CollectiveEstimate estimate(seen, table->ranks);
        for (const auto& [bytes, time] : points) {
          const bool near = bytes <= seen.back().first * 64 && bytes * 64 >= seen.front().first;
          const bool is_seen = bytes >= seen.front().first && bytes <= seen.back().first;
          if (!near || is_seen) continue;
          ++of_this;
          inside_this += holds(estimate.at(bytes), time) ? 1 : 0;
        }
      }
    }
    EXPECT_GE(inside_this * 2, of_this) << name << ": " << inside_this << " of " << of_this;
    all += of_this;
    inside += inside_this;
    ++machines;
  }
  EXPECT_EQ(machines, 11U);
  EXPECT_GE(inside * 10, all * 9) << inside << " of " << all;
}

}  // namespace
}  // namespace dovetail::models
