// The parts of the self-test that need no hardware: element types, known values, physical peaks.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/cuda/selftest_peaks.h"
#include "exec/selftest/encode.h"
#include "exec/selftest/known.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dovetail::exec::selftest {
namespace {

using schedule::Collective;
using schedule::DType;
using schedule::ReduceOp;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// IEEE 754: 1.0 is 0x3c00 in half and 0x3f80 in bfloat16; -2.5 = -1.25 * 2^1 is 0xc100 and 0xc020.
TEST(EncodeTest, HalvesHaveTheBitsOfTheStandard) {
  EXPECT_EQ(to_f16(1.0), 0x3c00);
  EXPECT_EQ(to_f16(-2.5), 0xc100);
  EXPECT_EQ(to_f16(0.0), 0x0000);
  EXPECT_EQ(to_bf16(1.0), 0x3f80);
  EXPECT_EQ(to_bf16(-2.5), 0xc020);
}

TEST(EncodeTest, WrongResultsAreReadAsWhatTheyAre) {
  EXPECT_EQ(from_f16(0x7c00), HUGE_VAL);
  EXPECT_TRUE(std::isnan(from_f16(0xffff)));
  EXPECT_TRUE(std::isnan(from_bf16(0xffff)));
  EXPECT_EQ(from_f16(0x0001), std::ldexp(1, -24));  // the smallest subnormal
  EXPECT_EQ(from_f16(0x7bff), 65504.0);             // the largest number
}

// All whole numbers up to 256 and half numbers up to 128: what known.h says bf16 holds.
TEST(EncodeTest, EveryDTypeGivesKnownValuesBack) {
  std::vector<double> values;
  for (int i = 0; i <= 256; ++i) values.push_back(i);
  for (int i = 0; i < 128; ++i) values.push_back(i + 0.5);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64}) {
    EXPECT_EQ(decode(dtype, encode(dtype, values)), values) << to_string(dtype);
  }
}

TEST(EncodeTest, ANumberThatTheTypeCannotHoldIsOurMistake) {
  EXPECT_THAT([&] { static_cast<void>(to_bf16(257.0)); },
              ThrowsMessage<CheckError>(HasSubstr("257 is not exact in bf16")));
  EXPECT_THAT([&] { static_cast<void>(to_f16(2049.0)); },
              ThrowsMessage<CheckError>(HasSubstr("2049 is not exact in f16")));
}

// Over 7 ranks element 6 is 7 + 14 + ... + 49 = 196, its average 28.
TEST(KnownValuesTest, SumsAreExactInEveryDTypeUpToSevenRanks) {
  EXPECT_EQ(known_reduced(7, 6, ReduceOp::Sum), 196);
  EXPECT_EQ(known_reduced(7, 6, ReduceOp::Average), 28);
  for (std::int64_t ranks = 1; ranks <= kMostKnownRanks; ++ranks) {
    for (std::int64_t i = 0; i < 7; ++i) {
      double sum = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) sum += known_value(rank, i);
      EXPECT_EQ(known_reduced(ranks, i, ReduceOp::Sum), sum);
      EXPECT_EQ(from_bf16(to_bf16(sum)), sum);
      EXPECT_EQ(from_f16(to_f16(sum / static_cast<double>(ranks))),
                known_reduced(ranks, i, ReduceOp::Average));
    }
  }
}

// Three ranks, shares of two elements. Rank r brings v(r, i) = (i mod 7 + 1) (r + 1).
TEST(KnownValuesTest, EachCollectiveHasItsResult) {
  Expected what = {.ranks = 3, .share = 2, .root = 2};
  what.kind = Collective::AllGather;  // element 3 is element 1 of rank 1: 2 * 2
  EXPECT_EQ(known_result(what, 0, 3), 4);
  what.kind = Collective::AllToAll;  // on rank 1, element 4 is rank 2's element 2: 3 * 3
  EXPECT_EQ(known_result(what, 1, 4), 9);
  what.kind = Collective::ReduceScatter;  // rank 2's element 1 is element 5 of the sum: 6 * 6
  EXPECT_EQ(known_result(what, 2, 1), 36);
  what.kind = Collective::Broadcast;  // rank 2's element 5: 6 * 3
  EXPECT_EQ(known_result(what, 0, 5), 18);
  what.kind = Collective::SendRecv;  // rank 0's element 1: 2
  EXPECT_EQ(known_result(what, 1, 1), 2);
}

TEST(ToleranceTest, OnlyAveragesOverOddCountsMayBeRounded) {
  EXPECT_EQ(tolerance(DType::BF16, 2), 0);
  EXPECT_EQ(tolerance(DType::F32, 4), 0);
  EXPECT_EQ(tolerance(DType::BF16, 3), 1.0 / 64);
  EXPECT_LT(tolerance(DType::F64, 3), 1e-15);
}

TEST(PhysicalPeaksTest, ADeviceIsFoundByTheNameOfItsDriver) {
  EXPECT_EQ(cuda::physical_peaks("NVIDIA H200")->half_tflops, 989.5);
  EXPECT_EQ(cuda::physical_peaks("NVIDIA H100 80GB HBM3")->memory_gbytes_per_s, 3360);
  EXPECT_EQ(cuda::physical_peaks("NVIDIA H100 PCIe")->half_tflops, 756);
  EXPECT_EQ(cuda::physical_peaks("NVIDIA A100-SXM4-80GB")->f32_tflops, 19.5);
  EXPECT_EQ(cuda::physical_peaks("NVIDIA GH200 480GB")->memory_gbytes_per_s, 4900);
  EXPECT_EQ(cuda::physical_peaks("NVIDIA L40S")->f32_tflops, 91.6);
}

TEST(PhysicalPeaksTest, APartOfAWordIsNoName) {
  EXPECT_FALSE(cuda::physical_peaks("NVIDIA A1000").has_value());
  EXPECT_FALSE(cuda::physical_peaks("NVIDIA L40").has_value());
  EXPECT_FALSE(cuda::physical_peaks("Tesla T4").has_value());
}

}  // namespace
}  // namespace dovetail::exec::selftest
