// Rates of attention kernels: at what was measured, between it and beyond it, and what a Roofline makes of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/attention_table.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>

#include "models/rates/gemm_table.h"
#include "models/rates/op_model.h"

namespace dovetail::models {
namespace {

using schedule::Attention;
using namespace std::chrono_literals;

AttentionTable small() {
  AttentionTable table;
  table.add(64, 1024, {FlopPerSecond(1e14), 10us}, std::nullopt);
  table.add(64, 4096, {FlopPerSecond(4e14), 30us}, std::nullopt);
  table.add(256, 1024, {FlopPerSecond(4e14), 10us}, std::nullopt);
  return table;
}

Duration time_of(const AttentionTable& table, const Attention& attention) {
  return table.time(attention, Flop(1e12));
}

TEST(AttentionTableTest, IsReadByTokensSeen) {
  const AttentionTable table = small();
  const auto time = [&](std::int64_t tokens, std::int64_t head_dim) {
    return time_of(table, {.tokens = tokens, .head_dim = head_dim});
  };
  EXPECT_EQ(time(512, 64), 10'010us);
  EXPECT_EQ(time(2048, 64), 2530us);
  EXPECT_NEAR(to_us(time(1024, 64)), 5020, 0.1);
  EXPECT_EQ(time(1, 64), time(512, 64));
  EXPECT_EQ(time(1 << 20, 64), time(2048, 64));
  EXPECT_NEAR(to_us(time(512, 128)), 5010, 0.1);
  EXPECT_EQ(time(512, 8), time(512, 64));
  EXPECT_EQ(time(512, 512), 2510us);
}

TEST(AttentionTableTest, HeadsOfEightyTakeAsLongAsThoseOf128) {
  const AttentionTable table = small();
  // As many FLOP of heads of 80 are those of 128 with five of eight columns.
  const Duration wide = table.time({.tokens = 512, .head_dim = 128}, Flop(1.6e12));
  EXPECT_NEAR(to_us(time_of(table, {.tokens = 512, .head_dim = 80})), to_us(wide), 0.1);
}

TEST(AttentionTableTest, BackwardIsSlowerAsMeasuredOrByAShare) {
  AttentionTable table = small();
  EXPECT_NEAR(to_us(time_of(table, {.tokens = 512, .head_dim = 64, .backward = true})),
              10 + 10'000 / 0.85, 0.1);
  table.add(64, 1024, {FlopPerSecond(1e14), 10us}, AttentionTable::Line{FlopPerSecond(5e13), 20us});
  EXPECT_EQ(time_of(table, {.tokens = 512, .head_dim = 64, .backward = true}), 20'020us);
}

TEST(AttentionTableTest, EveryGpuWithProductsHasAttention) {
  for (const std::string& device : gemm_devices()) {
    const auto table = attention_table(device);
    ASSERT_NE(table, nullptr) << device;
    // Longer sequences fill a GPU better.
    Duration before = 1h;
    for (std::int64_t tokens = 128; tokens <= 2048; tokens *= 2) {
      const Duration time = time_of(*table, {.tokens = tokens, .head_dim = 128});
      EXPECT_LE(time, before) << device << " at " << tokens;
      before = time;
    }
    EXPECT_LT(before, 10ms) << device;
  }
  EXPECT_EQ(attention_table("abacus"), nullptr);
}

TEST(AttentionTableTest, AnOpTakesTheLargerOfMovingAndComputing) {
  OpModel model;
  model.compute.emplace();
  model.compute->memory = BytesPerSecond(1e12);
  model.compute->attention = std::make_shared<AttentionTable>(small());
  schedule::Op op;
  op.dtype = schedule::DType::BF16;
  op.work = schedule::MemoryWork{.bytes = Bytes(8'000'000),
                                 .flop = Flop(4e11),
                                 .attention = Attention{.tokens = 512, .head_dim = 64}};
  EXPECT_EQ(model.price(op).by_class.front(), from_us(4010));
  std::get<schedule::MemoryWork>(op.work).bytes = Bytes(8'000'000'000);
  EXPECT_EQ(model.price(op).by_class.front(), from_us(10'000));
}

}  // namespace
}  // namespace dovetail::models
