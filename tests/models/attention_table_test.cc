// Rates of attention kernels: at what was measured, between it and beyond it, and what a Roofline makes of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/attention_table.h"

#include <gtest/gtest.h>

#include "models/rates/gemm_table.h"
#include "models/rates/op_model.h"

namespace dovetail::models {
namespace {

using schedule::Attention;

AttentionTable small() {
  AttentionTable table;
  table.add(64, 1024, FlopPerSecond(1e14));
  table.add(64, 4096, FlopPerSecond(4e14));
  table.add(256, 1024, FlopPerSecond(4e14));
  return table;
}

TEST(AttentionTableTest, IsReadByTokensSeen) {
  const AttentionTable table = small();
  const auto rate = [&](std::int64_t tokens, std::int64_t head_dim) {
    return table.rate(Attention{.tokens = tokens, .head_dim = head_dim}).count() / 1e14;
  };
  EXPECT_NEAR(rate(512, 64), 1, 1e-9);
  EXPECT_NEAR(rate(2048, 64), 4, 1e-9);
  EXPECT_NEAR(rate(1024, 64), 2, 1e-9);
  EXPECT_NEAR(rate(1, 64), 1, 1e-9);
  EXPECT_NEAR(rate(1 << 20, 64), 4, 1e-9);
  EXPECT_NEAR(rate(512, 128), 2, 1e-9);
  EXPECT_NEAR(rate(512, 8), 1, 1e-9);
  EXPECT_NEAR(rate(512, 512), 4, 1e-9);
}

TEST(AttentionTableTest, BackwardIsSlower) {
  const Attention forward{.tokens = 512, .head_dim = 64};
  const Attention backward{.tokens = 512, .head_dim = 64, .backward = true};
  EXPECT_NEAR(small().rate(backward).count(), 0.85 * small().rate(forward).count(), 1);
}

TEST(AttentionTableTest, EveryGpuWithProductsHasAttention) {
  for (const std::string& device : gemm_devices()) {
    const AttentionTable* const table = attention_table(device);
    ASSERT_NE(table, nullptr) << device;
    // Longer sequences fill a GPU better.
    double before = 0;
    for (std::int64_t tokens = 128; tokens <= 8192; tokens *= 2) {
      const double rate = table->rate(Attention{.tokens = tokens, .head_dim = 128}).count();
      EXPECT_GT(rate, before) << device << " at " << tokens;
      before = rate;
    }
    EXPECT_GT(before, 1e14) << device;
  }
  EXPECT_EQ(attention_table("abacus"), nullptr);
}

TEST(AttentionTableTest, AnOpTakesTheLargerOfMovingAndComputing) {
  OpModel model;
  model.compute.emplace();
  model.compute->memory = BytesPerSecond(1e12);
  const AttentionTable table = small();
  model.compute->attention = &table;
  schedule::Op op;
  op.dtype = schedule::DType::BF16;
  op.work = schedule::MemoryWork{.bytes = Bytes(8'000'000),
                                 .flop = Flop(4e11),
                                 .attention = Attention{.tokens = 512, .head_dim = 64}};
  EXPECT_EQ(model.price(op).by_class.front(), from_us(4000));
  std::get<schedule::MemoryWork>(op.work).bytes = Bytes(8'000'000'000);
  EXPECT_EQ(model.price(op).by_class.front(), from_us(10'000));
}

}  // namespace
}  // namespace dovetail::models
