// The alpha-beta fit: known lines, relative weights, coefficients that must not be negative.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/fit.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace dovetail::models {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(FitTest, RecoversTheLineThatMadeTheTimes) {
  // 50 us + 8 ns per byte, from 64 KiB to 64 MiB.
  std::vector<TimedBytes> samples;
  for (Bytes bytes = kib(64); bytes <= mib(64); bytes = bytes * 2) {
    samples.push_back({bytes, microseconds(50) + nanoseconds(8 * bytes.count())});
  }
  const AlphaBetaFit fit = fit_alpha_beta(samples);
  EXPECT_NEAR(static_cast<double>(fit.line.alpha.count()), 50000, 1);
  EXPECT_NEAR(fit.line.ns_per_byte, 8, 1e-9);
  EXPECT_LT(fit.max_residual, 1e-9);
}

TEST(FitTest, WeighsSamplesByTheirRelativeError) {
  // One size measured as 100 and 200 ns, and alpha tied to 0 by a sample at 1 byte of 1 ns, say:
  // three samples t = 100, 200 at 100 bytes and t = 1 at 1 byte. With alpha = 0 the sum of
  // (beta b / t - 1)^2 is (beta - 1)^2 + (beta / 2 - 1)^2 + (beta - 1)^2, least at
  // beta = (1 + 1/2 + 1) / (1 + 1/4 + 1) = 10/9. The free alpha must be 0 or better that.
  const std::vector<TimedBytes> samples{
      {Bytes(100), nanoseconds(100)}, {Bytes(100), nanoseconds(200)}, {Bytes(1), nanoseconds(1)}};
  const AlphaBetaFit fit = fit_alpha_beta(samples);
  // Expectation for both free: the sample at 1 byte is met exactly, alpha + beta = 1, and at 100
  // bytes y = alpha + 100 beta is least for (y/100 - 1)^2 + (y/200 - 1)^2: y = 120. Then
  // 99 beta = 119 gives alpha < 0, so alpha is 0 and beta is 10/9.
  EXPECT_EQ(fit.line.alpha, nanoseconds(0));
  EXPECT_NEAR(fit.line.ns_per_byte, 10.0 / 9, 1e-12);
  // Residuals: 1/9, 4/9, 1/9.
  EXPECT_NEAR(fit.median_residual, 1.0 / 9, 1e-12);
  EXPECT_NEAR(fit.max_residual, 4.0 / 9, 1e-12);
}

TEST(FitTest, LeavesOutTheSlopeWhereTimesFall) {
  // 20 us at 1000 bytes, 10 us at 2000 bytes: the free slope is negative. Expectation: a constant a
  // that minimises (a/20 - 1)^2 + (a/10 - 1)^2: (1/20 + 1/10) / (1/400 + 1/100) = 12 us.
  const std::vector<TimedBytes> samples{{Bytes(1000), microseconds(20)},
                                        {Bytes(2000), microseconds(10)}};
  const AlphaBetaFit fit = fit_alpha_beta(samples);
  EXPECT_EQ(fit.line.alpha, microseconds(12));
  EXPECT_EQ(fit.line.ns_per_byte, 0);
  // Residuals 0.4 and 0.2: the median of two is their mean.
  EXPECT_NEAR(fit.median_residual, 0.3, 1e-12);
  EXPECT_NEAR(fit.max_residual, 0.4, 1e-12);
}

TEST(FitTest, NeedsTwoSizes) {
  const std::vector<TimedBytes> samples{{Bytes(1000), microseconds(20)},
                                        {Bytes(1000), microseconds(10)}};
  EXPECT_THAT([&] { static_cast<void>(fit_alpha_beta(samples)); },
              ThrowsMessage<CheckError>(HasSubstr("all samples have 1000 B")));
}

}  // namespace
}  // namespace dovetail::models
