// How sharded buckets are shaped and filled, against the source's own figures.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/fragments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"

namespace dovetail::schedule {
namespace {

using ::testing::ElementsAre;

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

TEST(FragmentsTest, AI6FragmentsPartitionTensors) {
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
    }
    EXPECT_EQ(covered, sizes);
  }
}

}  // namespace
}  // namespace dovetail::schedule
