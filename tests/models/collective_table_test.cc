// Collective tables: reading between points, choosing how, the monotone hull.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/collective_table.h"

#include "base/error.h"
#include "base/random.h"
#include "models/clusters/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace dovetail::models {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::string kClusters = DOVETAIL_SOURCE_DIR "/models/clusters";

CollectivePoint point(std::int64_t bytes, std::int64_t us) {
  return {.bytes = Bytes(bytes), .isolated = microseconds(us)};
}

// On the line 10 us + 1 us per 1000 bytes.
CollectiveTable straight() {
  return CollectiveTable(
      std::vector{point(1000, 11), point(2000, 12), point(4000, 14), point(8000, 18)});
}

CollectiveTable shipped(const std::string& name) {
  const Cluster cluster = load_cluster(name, kClusters);
  return collective_table(cluster, {schedule::Collective::AllReduce, cluster.ranks});
}

TEST(CollectiveTableTest, ReadsAPointAsItWasMeasured) {
  EXPECT_EQ(straight().time(Bytes(2000)).isolated, microseconds(12));
  EXPECT_EQ(straight().time(Bytes(8000)).isolated, microseconds(18));
}

TEST(CollectiveTableTest, IsLinearBetweenPointsOfALine) {
  // Expectation: 3000 bytes lie halfway between 12 us and 14 us.
  EXPECT_EQ(straight().time(Bytes(3000)).isolated, microseconds(13));
}

// 564 us at 128 KiB fall to 382 at 256 KiB: no more than that is latency, and 16 messages of 16 MiB load the link for no
// less than one of 256 MiB.
TEST(CollectiveTableTest, ManyMessagesLoadALinkForNoLessThanOne) {
  const CollectiveTable efa = shipped("b200x32_efa");
  EXPECT_LE(efa.latency(), microseconds(383));
  const auto on_link = [](const CollectiveTable& table, Bytes bytes) {
    return table.time(bytes).isolated - table.latency(bytes);
  };
  EXPECT_GE(16 * on_link(efa, mib(16)), efa.time(mib(256)).isolated);
  for (const char* name : {"b200x32_efa", "h100x16_tcpx", "mi300x16", "a100x8", "b200x16_roce"}) {
    const CollectiveTable table = shipped(name);
    double least = 1e9;  // ns a byte
    for (const CollectiveTable::Knot& knot : table.knots()) {
      least = std::min(least, knot.isolated_ns / knot.bytes);
    }
    for (std::int64_t bytes = 1 << 10; bytes <= 1 << 28; bytes *= 2) {
      EXPECT_GE(static_cast<double>(on_link(table, Bytes(bytes)).count()) + 1,
                least * static_cast<double>(bytes))
          << name << " at " << bytes;
    }
  }
  // It begins at 8 MiB, and has the shape of NCCL's estimate below.
  EXPECT_LE(shipped("h100x16_tcpx").latency(), shipped("h100x16_tcpx").time(kib(1)).isolated);
}

TEST(CollectiveTableTest, TakesTheSmallestSizeBelowTheTable) {
  EXPECT_EQ(straight().time(Bytes(999)).isolated, microseconds(11));
  EXPECT_EQ(straight().time(Bytes(0)).isolated, microseconds(11));
}

TEST(CollectiveTableTest, GoesOnWithTheLastSlopeAboveTheTable) {
  // Expectation: 4 us per 4000 bytes, so 2000 bytes beyond the end cost 2 us more than 18 us.
  EXPECT_EQ(straight().time(Bytes(10000)).isolated, microseconds(20));
}

TEST(CollectiveTableTest, GrowsToElevenDaysAtMost) {
  // Expectation: 10 s a byte; a tebibyte would take 3 * 10^5 years.
  const CollectiveTable table(std::vector{point(1, 1), point(2, 10'000'001)});
  const CollectiveTime time = table.time(Bytes(std::int64_t{1} << 40));
  EXPECT_EQ(time.isolated, std::chrono::seconds(1'000'000));
  EXPECT_EQ(time.back_to_back, std::chrono::seconds(1'000'000));
}

TEST(CollectiveTableTest, GoesOnWithTimePerByteWhereTheCurveEndsFalling) {
  const CollectiveTable table(std::vector{point(1000, 10), point(2000, 8)});
  // Expectation: the slope is negative; 8 us per 2000 bytes is taken, 2000 bytes more cost 8 us.
  EXPECT_EQ(table.time(Bytes(4000)).isolated, microseconds(16));
}

TEST(CollectiveTableTest, ReportsHowWellALeftOutPointIsMet) {
  const CollectiveTable table(std::vector{point(1000, 10), point(2000, 20), point(4000, 60)});
  // Without the point at 2000: 10 + 50 / 3 = 26.667 us, wrong by 1/3.
  ASSERT_TRUE(table.accuracy().has_value());
  EXPECT_EQ(table.accuracy()->points, 1U);
  EXPECT_NEAR(table.accuracy()->worst, 1.0 / 3, 1e-12);
  EXPECT_EQ(straight().accuracy()->worst, 0);
}

// One point 1 % slower moves no size by more, and no size the other way.
TEST(CollectiveTableTest, NoiseInOnePointMovesNoSizeByMore) {
  Random random(20261126);
  for (int round = 0; round < 300; ++round) {
    std::vector<CollectivePoint> points;
    std::int64_t bytes = 0;
    for (std::int64_t i = random.between(2, 20); i > 0; --i) {
      bytes = bytes * random.between(1, 4) + random.between(1, 1 << 20);
      points.push_back({.bytes = Bytes(bytes), .isolated = microseconds(random.between(10, 9000))});
    }
    const CollectiveTable before(points);
    CollectivePoint& moved = points.at(
        static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(points.size()) - 1)));
    moved.isolated += moved.isolated / 100;
    const CollectiveTable after(points);
    for (std::int64_t size = 1; size <= bytes; size += 1 + bytes / 200) {
      const auto was = static_cast<double>(before.time(Bytes(size)).isolated.count());
      const auto is = static_cast<double>(after.time(Bytes(size)).isolated.count());
      ASSERT_LE(is, was * 1.01 + 1) << "seed 20261126 round " << round << " size " << size;
      ASSERT_GE(is, was - 1) << "seed 20261126 round " << round << " size " << size;
    }
  }
}

TEST(CollectiveTableTest, KeepsBothTimesApart) {
  std::vector points{point(1000, 10), point(3000, 30)};
  points[0].back_to_back = microseconds(8);
  points[1].back_to_back = microseconds(20);
  const CollectiveTable table(points);
  // Expectation, halfway: (10 + 30) / 2 and (8 + 20) / 2.
  EXPECT_EQ(table.time(Bytes(2000)), (CollectiveTime{microseconds(20), microseconds(14)}));
}

TEST(CollectiveTableTest, TakesOneTimeForBothWhereOnlyOneIsKnown) {
  EXPECT_EQ(straight().time(Bytes(3000)).back_to_back, microseconds(13));
}

TEST(CollectiveTableTest, ALineHoldsFromZeroBytesOn) {
  const CollectiveTable line(AlphaBeta{.alpha = microseconds(20), .ns_per_byte = 0.5});
  EXPECT_EQ(line.time(Bytes(0)).isolated, microseconds(20));
  // Expectation: 20 us + 4000 * 0.5 ns.
  EXPECT_EQ(line.time(Bytes(4000)).isolated, microseconds(22));
  EXPECT_FALSE(line.accuracy().has_value());
  EXPECT_THAT(line.hull(TimeKind::Isolated),
              ::testing::ElementsAre(LinearPiece{Bytes(0), 2e4, 0.5}));
}

TEST(CollectiveTableTest, AddsTwoTablesAtEverySize) {
  const CollectiveTable gather(std::vector{point(1000, 10), point(2000, 20)});
  const CollectiveTable scatter(std::vector{point(1500, 12), point(2500, 22)});
  const CollectiveTable sum = gather + scatter;
  // Expectation at 500: 10 + 12, both below their tables. At 1250: 12.5 + 12. At 1750: 17.5 + 14.5.
  // At 4000, both beyond: 40 + 37.
  EXPECT_EQ(sum.time(Bytes(500)).isolated, microseconds(22));
  EXPECT_EQ(sum.time(Bytes(1250)).isolated, nanoseconds(24500));
  EXPECT_EQ(sum.time(Bytes(1750)).isolated, microseconds(32));
  EXPECT_EQ(sum.time(Bytes(4000)).isolated, microseconds(77));
}

TEST(CollectiveTableTest, ScalesAllTimes) {
  const CollectiveTable half = straight().scaled(0.5);
  EXPECT_EQ(half.time(Bytes(3000)).isolated, nanoseconds(6500));
  EXPECT_EQ(half.time(Bytes(10000)).back_to_back, microseconds(10));
}

TEST(CollectiveTableTest, HasAnotherTablesShapeBelowItsOwnSizes) {
  // Expectation: the line 5 us + 1 ns a byte takes 6 us at 1000 bytes, where this table takes 11: 5.5 us at 500
  // are 11 * 5.5 / 6 = 10.083.
  const CollectiveTable shape(AlphaBeta{.alpha = microseconds(5), .ns_per_byte = 1});
  const CollectiveTable extended = straight().extended_below(shape);
  EXPECT_EQ(extended.time(Bytes(1000)), straight().time(Bytes(1000)));
  EXPECT_EQ(extended.time(Bytes(9000)), straight().time(Bytes(9000)));
  EXPECT_NEAR(to_us(extended.time(Bytes(500)).isolated), 10.083, 0.001);
  EXPECT_NEAR(to_us(extended.time(Bytes(0)).isolated), 11 * 5.001 / 6, 0.001);
}

TEST(CollectiveTableTest, GoesThroughTimesThatWereMeasuredAgain) {
  // Expectation: 10 us and 1 ns per byte, measured again as 12 us at 1000 bytes (1 more) and as 39 us at 16,000
  // (13 more, 1.5 times): 8500 bytes lie in the middle and take 7 more; 500 bytes take 1 more; 90,000 take
  // 1.5 times their 100 us. Lone times, 5 us shorter here, move by the same differences.
  const CollectiveTable table(AlphaBeta{.alpha = microseconds(5), .ns_per_byte = 1},
                              AlphaBeta{.alpha = microseconds(10), .ns_per_byte = 1});
  const std::vector<SizeTime> again = {{.bytes = Bytes(1000), .time = microseconds(12)},
                                       {.bytes = Bytes(16000), .time = microseconds(39)}};
  const CollectiveTable moved = table.remeasured(again);
  EXPECT_EQ(moved.time(Bytes(500)).back_to_back, nanoseconds(11500));
  EXPECT_EQ(moved.time(Bytes(1000)).back_to_back, microseconds(12));
  EXPECT_EQ(moved.time(Bytes(8500)).back_to_back, nanoseconds(25500));
  EXPECT_EQ(moved.time(Bytes(8500)).isolated, nanoseconds(20500));
  EXPECT_EQ(moved.time(Bytes(16000)).back_to_back, microseconds(39));
  EXPECT_EQ(moved.time(Bytes(90000)).back_to_back, microseconds(150));
  // A tenth of the time at one size does not make the lone time negative.
  const std::vector<SizeTime> quicker = {{.bytes = Bytes(10000), .time = microseconds(2)}};
  EXPECT_EQ(table.remeasured(quicker).time(Bytes(10000)).isolated, microseconds(3));
  EXPECT_EQ(table.remeasured({}), table);
}

TEST(CollectiveTableTest, HullFollowsTheCurveUnlessItFallsLater) {
  const CollectiveTable table(
      std::vector{point(1000, 10), point(2000, 30), point(3000, 20), point(4000, 40)});
  // Expectation: 10 us up to 1000 bytes. Then 20 ns per byte until 20 us are reached, at 1500: from
  // there a bucket padded to 3000 bytes is as fast. From 3000 on 20 ns per byte again, for ever.
  EXPECT_THAT(table.hull(TimeKind::Isolated),
              ::testing::ElementsAre(LinearPiece{Bytes(0), 10000, 0},       //
                                     LinearPiece{Bytes(1000), -10000, 20},  //
                                     LinearPiece{Bytes(1500), 20000, 0},    //
                                     LinearPiece{Bytes(3000), -40000, 20}));
}

TEST(CollectiveTableTest, HullOfTheSmallerTimeHasACornerWhereTheTwoTimesCross) {
  std::vector points{point(1000, 10), point(3000, 30)};
  points[0].back_to_back = microseconds(20);
  points[1].back_to_back = microseconds(20);
  // Expectation: the lone time rises from 10 us at 10 ns per byte and meets 20 us at 2000 bytes.
  // Beyond the table the queued time goes on at 20 us / 3000 bytes.
  const auto hull = CollectiveTable(points).hull(TimeKind::Smaller);
  ASSERT_EQ(hull.size(), 4U);
  EXPECT_EQ(hull[0], (LinearPiece{Bytes(0), 10000, 0}));
  EXPECT_EQ(hull[1], (LinearPiece{Bytes(1000), 0, 10}));
  EXPECT_EQ(hull[2], (LinearPiece{Bytes(2000), 20000, 0}));
  EXPECT_EQ(hull[3].from, Bytes(3000));
  EXPECT_DOUBLE_EQ(hull[3].ns_per_byte, 20.0 / 3);
}

TEST(CollectiveTableTest, HullIsTheRunningMinimumOnRandomTables) {
  Random random(20240607);
  for (int round = 0; round < 200; ++round) {
    std::vector<CollectivePoint> points;
    std::int64_t bytes = 0;
    const std::int64_t count = random.between(2, 8);
    for (std::int64_t i = 0; i < count; ++i) {
      bytes += random.between(1, 40);
      points.push_back({.bytes = Bytes(bytes),
                        .isolated = nanoseconds(random.between(100, 900)),
                        .back_to_back = nanoseconds(random.between(100, 900))});
    }
    const CollectiveTable table(points);
    const auto hull = table.hull(TimeKind::Smaller);
    // Beyond the table no time falls any more: the walk down may start at any size out there.
    Duration least = Duration::max();
    for (std::int64_t size = bytes + 2000; size >= 0; --size) {
      const CollectiveTime time = table.time(Bytes(size));
      least = std::min({least, time.isolated, time.back_to_back});
      // Both sides are rounded to nanoseconds, the hull once, the minimum before it is taken.
      ASSERT_NEAR(static_cast<double>(evaluate(hull, Bytes(size)).count()),
                  static_cast<double>(least.count()), 1)
          << "seed 20240607 round " << round << " size " << size;
    }
  }
}

TEST(CollectiveTableTest, HullOfEightA100IsFlatWhereTheCurveFalls) {
  const auto hull = shipped("a100x8").hull(TimeKind::Smaller);
  // Measured: 101.9, 101.4, 101.5 us at 1, 2, 4 MiB.
  EXPECT_EQ(evaluate(hull, mib(1)), nanoseconds(101400));
  EXPECT_EQ(evaluate(hull, mib(2)), nanoseconds(101400));
  EXPECT_EQ(evaluate(hull, mib(4)), nanoseconds(101500));
}

TEST(CollectiveTableTest, HullOfTcpxoSkipsTheHumpAt128KiB) {
  const CollectiveTable table = shipped("h100x16_tcpxo");
  // Measured in place: 157.6, 169.0, 163.9 us at 64, 128, 256 KiB.
  EXPECT_EQ(table.time(kib(128)).isolated, nanoseconds(169000));
  EXPECT_EQ(evaluate(table.hull(TimeKind::Isolated), kib(128)), nanoseconds(163900));
}

TEST(CollectiveTableTest, ReportsTheLeaveOneOutErrorsOfEightA100) {
  // Ten inner points from 1 MiB to 512 MiB, each predicted from its neighbours. E.g. 16 MiB between
  // 133.5 us at 8 MiB and 424.0 us at 32 MiB: linear 230.3 us, measured 276.6: 16.7 % wrong. The
  // numbers below were computed apart from this code from the same ten rows.
  const TableAccuracy accuracy = *shipped("a100x8").accuracy();
  EXPECT_EQ(accuracy.points, 10U);
  EXPECT_NEAR(accuracy.median, 0.0593, 0.00005);  // the upper one of the two in the middle
  EXPECT_NEAR(accuracy.worst, 0.1975, 0.00005);
}

TEST(CollectiveTableTest, RefusesSizesThatDoNotRise) {
  const std::vector points{point(2000, 10), point(1000, 20)};
  EXPECT_THAT([&] { static_cast<void>(CollectiveTable{points}); },
              ThrowsMessage<CheckError>(HasSubstr("unsorted")));
}

}  // namespace
}  // namespace dovetail::models
