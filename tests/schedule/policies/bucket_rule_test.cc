// When a bucket is full: on reaching a limit, or before exceeding it; in bytes, or in elements.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/bucket_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedule/policies/policies.h"
#include "tests/support/programs.h"

namespace dovetail::schedule {
namespace {

using dovetail::testing::chain;
using dovetail::testing::us;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<GradientSize> sizes(const std::vector<std::int64_t>& bytes) {
  std::vector<GradientSize> all;
  for (const std::int64_t size : bytes) all.push_back({Bytes(size), size / 2});
  return all;
}

// 6 + 4 = 10 reaches 10; 5 + 20 = 25 overshoots it; 1 is left.
TEST(BucketRuleTest, OnReachingABucketHoldsTheGradientThatFillsIt) {
  EXPECT_THAT(bucket_ends(sizes({6, 4, 5, 20, 1}), {.limits = {10}}), ElementsAre(2, 4, 5));
}

// 6 + 4 = 10 may stay; 5 would make 15, 20 is alone, and 1 follows it alone.
TEST(BucketRuleTest, BeforeExceedingABucketNeverHoldsMoreUnlessItIsOneGradient) {
  const BucketRule rule{.closes = Closes::BeforeExceeding, .limits = {10}};
  EXPECT_THAT(bucket_ends(sizes({6, 4, 5, 20, 1}), rule), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(bucket_ends(sizes({6, 4, 5, 20, 1}), {.closes = rule.closes, .limits = {36}}),
              ElementsAre(5));
  EXPECT_THAT(bucket_ends({}, rule), IsEmpty());
}

// The same sizes from the other end: 1, then 20 alone, then 5 + 4 = 9, which 6 would exceed.
TEST(BucketRuleTest, FromLastTheGradientThatIsReadyFirstGoesWithWhatIsLeft) {
  const BucketRule rule{.closes = Closes::FromLast, .limits = {10}};
  EXPECT_THAT(bucket_ends(sizes({6, 4, 5, 20, 1}), rule), ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(bucket_ends(sizes({6, 4}), rule), ElementsAre(2));
  EXPECT_THAT(bucket_ends({}, rule), IsEmpty());
}

// Of two bytes each: 5 elements are 10 bytes.
TEST(BucketRuleTest, LimitsAreInBytesOrInElements) {
  const BucketRule rule{.unit = CountedIn::Elements, .limits = {5}};
  EXPECT_THAT(bucket_ends(sizes({6, 4, 4, 20, 2}), rule), ElementsAre(2, 4, 5));
}

// PyTorch's DDP: the first bucket has a limit of its own. 1 reaches 1, then 6 + 4 and 5 + 20 reach 10.
TEST(BucketRuleTest, TheLastLimitRepeats) {
  EXPECT_THAT(bucket_ends(sizes({1, 6, 4, 5, 20}), {.limits = {1, 10}}), ElementsAre(1, 3, 5));
}

// Gradients of 40 kB, 80 kB, 40 kB become ready in this order. 100 kB are reached by the second, and
// would be exceeded by it.
TEST(BucketRuleTest, AThresholdClosesAsItIsTold) {
  const Program program = chain({{us(10), us(20), Bytes(40'000), us(4)},
                                 {us(10), us(20), Bytes(80'000), us(8)},
                                 {us(10), us(20), Bytes(40'000), us(4)}});
  const auto buckets = [&](const std::string& options) {
    std::vector<std::int64_t> bytes;
    for (const Bucket& bucket :
         make_schedule(program, parse_policy("threshold:cap=100KB" + options)).buckets) {
      bytes.push_back(payload(program, bucket).count());
    }
    return bytes;
  };
  EXPECT_THAT(buckets(""), ElementsAre(120'000, 40'000));
  EXPECT_THAT(buckets(",closes=before-exceeding"), ElementsAre(40'000, 80'000, 40'000));
  EXPECT_THAT(buckets(",closes=from-last"), ElementsAre(40'000, 80'000, 40'000));
  EXPECT_EQ(to_string(parse_policy("threshold:cap=8MiB,closes=before-exceeding")),
            "threshold:cap=8MiB,closes=before-exceeding");
}

}  // namespace
}  // namespace dovetail::schedule
