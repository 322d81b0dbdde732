// Fragments, shards and the state machine of sharded buckets, against the source's own figures.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/shard/tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"
#include "schedule/shard/fragments.h"
#include "tests/support/oracle.h"

namespace dovetail::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Five buckets of two parameters each; parameter p lies in bucket p / 2.
std::vector<std::vector<std::size_t>> five_buckets() {
  return {{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}, {4}, {4}};
}

std::vector<BatchLaunch> launches_of_one_micro_step(std::size_t batch, TrackerOrder placement) {
  BucketTracker tracker(five_buckets(), batch, placement);
  for (std::size_t p = 0; p < 10; ++p) tracker.deliver(p);
  tracker.final_sync();
  return tracker.launches();
}

// "{0,1} after 4, {2,3} after 8, {4} at the end".
std::string launches_text(std::size_t batch, TrackerOrder placement) {
  std::string text;
  for (const BatchLaunch& launch : launches_of_one_micro_step(batch, placement)) {
    text += text.empty() ? "{" : ", {";
    for (const std::size_t bucket : launch.buckets) {
      text += (text.back() == '{' ? "" : ",") + std::to_string(bucket);
    }
    text += launch.final_sync ? "} at the end" : "} after " + std::to_string(launch.deliveries);
  }
  return text;
}

void expect_o6(const std::string& what, std::size_t batch, TrackerOrder placement,
               const std::string& known) {
  dovetail::testing::expect_oracle("O6 " + what + ", p=" + std::to_string(batch),
                                   launches_text(batch, placement), known);
}

TEST(BucketShapeTest, A2RoundsAShardDownToWhole128ByteUnits) {
  // 100 MiB of f32 are 26,214,400 elements; a unit is 32 elements.
  EXPECT_EQ(bucket_shape(mib(100), Bytes(4), 8), (BucketShape{3'276'800, 8, 32}));
  EXPECT_EQ(bucket_shape(mib(100), Bytes(4), 8).size(), 26'214'400);
  // 26,214,400 / 3 = 8,738,133.3; 273,066 units of 32 are 8,738,112.
  EXPECT_EQ(bucket_shape(mib(100), Bytes(4), 3).shard, 8'738'112);
  EXPECT_EQ(bucket_shape(mib(100), Bytes(4), 3).size(), 26'214'336);
  EXPECT_EQ(bucket_shape(mib(100), Bytes(4), 1000).shard, 26'208);
  EXPECT_EQ(bucket_shape(mib(100), Bytes(4), 1000).size(), 26'208'000);
}

TEST(BucketShapeTest, A2GivesEachRankAtLeastOneUnit) {
  EXPECT_EQ(bucket_shape(Bytes(1), Bytes(4), 8), (BucketShape{32, 8, 32}));
  EXPECT_EQ(bucket_shape(Bytes(1), Bytes(2), 8), (BucketShape{64, 8, 64}));
}

TEST(BucketShapeTest, A2MakesBucketsOfAMultipleOfRanksTimes128Bytes) {
  for (std::int64_t ranks = 1; ranks <= 16; ++ranks) {
    for (const std::int64_t cap : {1, 4095, 1 << 20, 71'000'001}) {
      for (const std::int64_t element : {2, 4, 8}) {
        const BucketShape shape = bucket_shape(Bytes(cap), Bytes(element), ranks);
        EXPECT_EQ(shape.size() * element % (ranks * 128), 0) << ranks << ' ' << cap;
      }
    }
  }
}

TEST(FragmentsTest, A4SpreadsOneTensorOverSeveralBuckets) {
  // Bucket 20: a fills 0..15, b the rest of bucket 0, all of 1 and 2; then c opens bucket 3.
  const BucketShape shape{.shard = 10, .ranks = 2, .alignment = 1};
  EXPECT_THAT(
      pack_fragments(std::vector<std::int64_t>{15, 45, 5}, shape),
      ElementsAre(Fragment{0, 0, 0, 15, 0}, Fragment{1, 0, 0, 5, 15}, Fragment{1, 1, 5, 20, 0},
                  Fragment{1, 2, 25, 20, 0}, Fragment{2, 3, 0, 5, 0}));
}

TEST(FragmentsTest, A4StartsEachFragmentAtAnAlignedElement) {
  // Alignment 8: after 0..3 the next starts at 8, after 8..18 at 24; 32 is the end of the bucket.
  const BucketShape shape{.shard = 16, .ranks = 2, .alignment = 8};
  EXPECT_THAT(pack_fragments(std::vector<std::int64_t>{3, 10, 9}, shape),
              ElementsAre(Fragment{0, 0, 0, 3, 0}, Fragment{1, 0, 0, 10, 8},
                          Fragment{2, 0, 0, 8, 24}, Fragment{2, 1, 8, 1, 0}));
}

TEST(FragmentsTest, A5GivesEachRankItsRangeOfABucket) {
  // Shards of 10: the fragment at 15..20 belongs to rank 1 alone, 0..15 to both.
  const BucketShape shape{.shard = 10, .ranks = 2, .alignment = 1};
  EXPECT_EQ(shard_range({0, 0, 0, 15, 0}, shape, 0), (ShardRange{0, 10, 0}));
  EXPECT_EQ(shard_range({0, 0, 0, 15, 0}, shape, 1), (ShardRange{10, 5, 0}));
  EXPECT_EQ(shard_range({1, 0, 0, 5, 15}, shape, 0), (ShardRange{}));
  EXPECT_EQ(shard_range({1, 0, 0, 5, 15}, shape, 1), (ShardRange{0, 5, 5}));
}

TEST(FragmentsTest, AI6FragmentsPartitionTensorsAndShardsPartitionFragments) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const BucketShape shape =
        bucket_shape(Bytes(random.between(1, 4000)), Bytes(4), random.between(1, 5));
    std::vector<std::int64_t> sizes;
    for (std::int64_t i = random.between(1, 12); i > 0; --i)
      sizes.push_back(random.between(1, 900));
    std::vector<std::int64_t> covered(sizes.size());
    std::size_t bucket = 0;
    std::int64_t end = 0;
    for (const Fragment& fragment : pack_fragments(sizes, shape)) {
      EXPECT_EQ(fragment.first, covered[fragment.tensor]);
      covered[fragment.tensor] += fragment.count;
      EXPECT_TRUE(fragment.bucket == bucket ? fragment.offset >= end : fragment.offset == 0);
      bucket = fragment.bucket;
      end = fragment.offset + fragment.count;
      EXPECT_LE(end, shape.size());
      std::int64_t shards = 0;
      for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
        shards += shard_range(fragment, shape, rank).count;
      }
      EXPECT_EQ(shards, fragment.count);
    }
    EXPECT_EQ(covered, sizes);
  }
}

TEST(BucketTrackerTest, A6MovesThroughItsFourStates) {
  BucketTracker tracker({{0}, {0}, {1}}, 2, TrackerOrder::PlacedBefore);
  EXPECT_EQ(tracker.state(0), BucketState::Ready);
  tracker.deliver(0);
  EXPECT_EQ(tracker.state(0), BucketState::PartiallyFilled);
  tracker.deliver(1);
  EXPECT_EQ(tracker.state(0), BucketState::FullyFilled);
  tracker.deliver(2);
  EXPECT_EQ(tracker.state(0), BucketState::Syncing);
  EXPECT_EQ(tracker.state(1), BucketState::Syncing);
  tracker.final_sync();
  EXPECT_EQ(tracker.state(0), BucketState::Ready);
}

TEST(BucketTrackerDeathTest, A6RefusesIllegalTransitions) {
  EXPECT_DEATH(next_state(BucketState::Syncing, BucketEvent::Deliver), "deliver while syncing");
  EXPECT_DEATH(next_state(BucketState::Ready, BucketEvent::Launch), "launch while ready");
  EXPECT_DEATH(next_state(BucketState::Ready, BucketEvent::LaunchAtEnd), "while ready");
  EXPECT_DEATH(next_state(BucketState::PartiallyFilled, BucketEvent::Launch), "launch while part");
  EXPECT_DEATH(next_state(BucketState::FullyFilled, BucketEvent::Finish), "finish while fully");
  EXPECT_DEATH(next_state(BucketState::FullyFilled, BucketEvent::Complete), "complete while");
  EXPECT_DEATH(BucketTracker({{0}}, 0, TrackerOrder::PlacedBefore), "batches of no bucket");
}

TEST(BucketTrackerTest, O6LaunchesInTheSecondIteration) {
  const auto before = TrackerOrder::PlacedBefore;
  expect_o6("second iteration", 1, before,
            "{0} after 2, {1} after 4, {2} after 6, {3} after 8, {4} after 10");
  expect_o6("second iteration", 2, before, "{0,1} after 4, {2,3} after 8, {4} at the end");
  expect_o6("second iteration", 3, before, "{0,1,2} after 6, {3,4} at the end");
}

TEST(BucketTrackerTest, O6A7LaunchesOneGradientLaterInTheFirstIteration) {
  const auto arriving = TrackerOrder::PlacedOnArrival;
  expect_o6("first iteration", 1, arriving,
            "{0} after 3, {1} after 5, {2} after 7, {3} after 9, {4} at the end");
  expect_o6("first iteration", 2, arriving, "{0,1} after 5, {2,3} after 9, {4} at the end");
  expect_o6("first iteration", 3, arriving, "{0,1,2} after 7, {3,4} at the end");
}

TEST(BucketTrackerTest, A11LeavesTheRestOfTheBatchesToTheFinalSync) {
  const auto during_and_after = [](std::size_t batch, TrackerOrder placement) {
    std::pair<std::size_t, std::size_t> count;
    for (const BatchLaunch& launch : launches_of_one_micro_step(batch, placement)) {
      (launch.final_sync ? count.second : count.first) += launch.buckets.size();
    }
    return count;
  };
  EXPECT_EQ(during_and_after(2, TrackerOrder::PlacedBefore), std::pair(4ul, 1ul));
  EXPECT_EQ(during_and_after(3, TrackerOrder::PlacedBefore), std::pair(3ul, 2ul));
  EXPECT_EQ(during_and_after(1, TrackerOrder::PlacedBefore), std::pair(5ul, 0ul));
  EXPECT_EQ(during_and_after(1, TrackerOrder::PlacedOnArrival), std::pair(4ul, 1ul));
}

TEST(BucketTrackerTest, AI4KeepsAtMostOneBatchInFlight) {
  BucketTracker tracker(five_buckets(), 2, TrackerOrder::PlacedBefore);
  for (std::size_t p = 0; p < 10; ++p) {
    tracker.deliver(p);
    EXPECT_LE(tracker.in_flight(), 2u);
  }
  EXPECT_EQ(tracker.in_flight(), 2u);  // 2 and 3; 0 and 1 were waited for
  tracker.final_sync();
  EXPECT_EQ(tracker.in_flight(), 0u);
}

// Three micro-steps, five buckets: 15 collectives when each micro-step syncs, 5 when only the last
// does, whether the earlier gradients are copied at once or pile up in the parameters.
TEST(BucketTrackerTest, A17A19CountsSyncsPerStep) {
  const auto syncs = [](Arrival early) {
    BucketTracker tracker(five_buckets(), 1, TrackerOrder::PlacedBefore);
    for (int micro_step = 0; micro_step < 3; ++micro_step) {
      for (std::size_t p = 0; p < 10; ++p) {
        tracker.deliver(p, micro_step < 2 ? early : Arrival::CopyAndLaunch);
      }
    }
    tracker.final_sync();
    std::size_t count = 0;
    for (const BatchLaunch& launch : tracker.launches()) count += launch.buckets.size();
    return count;
  };
  EXPECT_EQ(syncs(Arrival::CopyAndLaunch), 15u);
  EXPECT_EQ(syncs(Arrival::CopyOnly), 5u);
  EXPECT_EQ(syncs(Arrival::KeepInParameter), 5u);
}

// Bucket 0 (parameters 0, 1) is full and waits for bucket 1 (parameter 2) to make a batch of two.
// The next micro-step delivers in another order: 1, 2, 0. With the old set kept, delivery 4 would
// launch bucket 0 without parameter 0, which then needs a second sync.
TEST(BucketTrackerTest, AL6ClearsTheDeliveredSetWhenAFullBucketIsRefilled) {
  BucketTracker tracker({{0}, {0}, {1}}, 2, TrackerOrder::PlacedBefore);
  tracker.deliver(0);
  tracker.deliver(1);
  EXPECT_EQ(tracker.state(0), BucketState::FullyFilled);
  tracker.deliver(1);
  EXPECT_EQ(tracker.state(0), BucketState::PartiallyFilled);
  tracker.deliver(2);
  EXPECT_THAT(tracker.launches(), IsEmpty());
  tracker.deliver(0);
  tracker.final_sync();
  EXPECT_THAT(tracker.launches(), ElementsAre(BatchLaunch{5, {0, 1}, false}));
}

TEST(BucketTrackerTest, A8WritesIntoABucketInFlightOnlyAfterAllSyncsAreFinished) {
  BucketTracker tracker({{0}, {1}}, 1, TrackerOrder::PlacedBefore);
  tracker.deliver(0);
  EXPECT_EQ(tracker.state(0), BucketState::Syncing);
  tracker.deliver(0, Arrival::CopyOnly);
  EXPECT_EQ(tracker.state(0), BucketState::PartiallyFilled);
  EXPECT_EQ(tracker.in_flight(), 0u);
}

TEST(BucketTrackerTest, A18A20LaunchesPartlyFilledBucketsAndSkipsEmptyOnes) {
  BucketTracker tracker(five_buckets(), 2, TrackerOrder::PlacedBefore);
  tracker.deliver(0);                            // half of bucket 0
  tracker.deliver(9, Arrival::KeepInParameter);  // of bucket 4, not copied yet
  tracker.final_sync();
  EXPECT_THAT(tracker.launches(), ElementsAre(BatchLaunch{2, {0, 4}, true}));
  for (std::size_t b = 0; b < 5; ++b) EXPECT_EQ(tracker.state(b), BucketState::Ready);
}

TEST(BucketTrackerTest, A9CountsAParameterThatSpansBucketsInEachOfThem) {
  // Parameter 1 lies in buckets 0, 1 and 2: its delivery completes 0 and 1, parameter 2 bucket 2.
  BucketTracker tracker({{0}, {0, 1, 2}, {2}}, 1, TrackerOrder::PlacedBefore);
  tracker.deliver(0);
  EXPECT_THAT(tracker.launches(), IsEmpty());
  tracker.deliver(1);
  EXPECT_THAT(tracker.launches(),
              ElementsAre(BatchLaunch{2, {0}, false}, BatchLaunch{2, {1}, false}));
  tracker.deliver(2);
  EXPECT_EQ(tracker.launches().back(), (BatchLaunch{3, {2}, false}));
}

}  // namespace
}  // namespace dovetail::schedule
