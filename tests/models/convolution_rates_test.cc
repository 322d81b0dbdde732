// Rates of convolutions: at what was measured, between it, and what a Roofline makes of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/convolution_rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "models/rates/op_model.h"

namespace dovetail::models {
namespace {

using schedule::Convolution;
using schedule::ConvolutionPass;

TEST(ConvolutionRatesTest, AreReadByPassAndChannels) {
  ConvolutionRates rates;
  rates.add(ProductType::Half, ConvolutionPass::Forward, false, 32, {0.8, 0.2});
  rates.add(ProductType::Half, ConvolutionPass::Forward, false, 128, {0.6, 0.4});
  const auto flop_share = [&](std::int64_t channels) {
    return rates.rate({.channels = channels}, ProductType::Half)->flop_share;
  };
  EXPECT_DOUBLE_EQ(flop_share(1), 0.2);
  EXPECT_DOUBLE_EQ(flop_share(64), 0.3);
  EXPECT_DOUBLE_EQ(flop_share(4096), 0.4);
  EXPECT_FALSE(rates.rate({.pass = ConvolutionPass::Weight, .channels = 64}, ProductType::Half));
  EXPECT_FALSE(rates.rate({.channels = 64, .strided = true}, ProductType::Half));
  EXPECT_FALSE(rates.rate({.channels = 64}, ProductType::Tf32));
}

// A kernel of 2 m n k FLOP that moves so much, on a GPU of 100 GB/s and 1 TFLOP/s.
TEST(ConvolutionRatesTest, TheSlowerOfMemoryAndProductsDecides) {
  Roofline roofline{.gemm_peak = {{schedule::DType::BF16, FlopPerSecond(1e12)}},
                    .memory = BytesPerSecond(1e11)};
  auto rates = std::make_shared<ConvolutionRates>();
  rates->add(ProductType::Half, ConvolutionPass::Forward, false, 64, {0.5, 0.5});
  roofline.convolutions = rates;
  const auto us = [&](std::int64_t k, std::int64_t moved) {
    schedule::Op op{.dtype = schedule::DType::BF16};
    op.work = schedule::GemmWork{
        .m = 1000, .n = 500, .k = k, .convolution = Convolution{.moved = moved, .channels = 64}};
    return to_us(*roofline.measured_product(op, std::get<schedule::GemmWork>(op.work)));
  };
  EXPECT_NEAR(us(1000, 1000), 2000, 0.1);     // 1 GFLOP at half a TFLOP/s
  EXPECT_NEAR(us(1, 50'000'000), 2000, 0.1);  // 100 MB at 50 GB/s
  EXPECT_NEAR(us(1000, 50'000'000), 2000 * std::pow(2, 0.25), 1);
}

// Measured on an H100 at a batch of 128 (us): the wide ones to 15 %.
TEST(ConvolutionRatesTest, TellThoseOfResNet) {
  Roofline h100{.gemm_peak = {{schedule::DType::BF16, FlopPerSecond(989e12)}},
                .memory = BytesPerSecond(3.35e12)};
  take_tables(h100, "h100");
  struct Seen {
    ConvolutionPass pass;
    std::int64_t in, out, window, side;
    double us;
  };
  for (const Seen& seen : {Seen{ConvolutionPass::Forward, 64, 64, 9, 56, 78.3},
                           Seen{ConvolutionPass::Input, 256, 128, 1, 56, 114.7},
                           Seen{ConvolutionPass::Weight, 512, 512, 9, 7, 51.6}}) {
    const std::int64_t pixels = 128 * seen.side * seen.side;
    const std::int64_t moved = pixels * (seen.in + seen.out) + seen.in * seen.out * seen.window;
    schedule::Op op{.dtype = schedule::DType::BF16};
    op.work = schedule::GemmWork{
        .m = pixels,
        .n = seen.out,
        .k = seen.in * seen.window,
        .convolution = Convolution{
            .pass = seen.pass, .moved = moved, .channels = std::min(seen.in, seen.out)}};
    const double us = to_us(*h100.measured_product(op, std::get<schedule::GemmWork>(op.work)));
    EXPECT_NEAR(us / seen.us, 1, 0.15) << seen.us;
  }
}

// A machine whose convolutions nobody measured takes the shares of its own rates.
TEST(ConvolutionRatesTest, OtherGpusTakeTheSameShares) {
  EXPECT_EQ(convolution_rates("a100"), convolution_rates("h100"));
  Roofline bare;
  take_tables(bare, "mi300");
  EXPECT_EQ(bare.convolutions, nullptr);
}

}  // namespace
}  // namespace dovetail::models
