// Rates of memory-bound kernels by how they go over their bytes, products that no grid holds, and a GPU's own book over both.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/memory_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>

#include "base/error.h"
#include "models/clusters/gpu_book.h"
#include "models/rates/gemm_table.h"
#include "models/rates/op_model.h"
#include "models/rates/product_rates.h"

namespace dovetail::models {
namespace {

using namespace std::chrono_literals;
using schedule::Access;
using schedule::DType;

TEST(MemoryRatesTest, AShareLiesBetweenThoseOfNeighbouringColumns) {
  MemoryRates rates;
  rates.add(Access::RmsNorm, std::nullopt, 1024, {.fixed = 2us, .share = 0.8});
  rates.add(Access::RmsNorm, std::nullopt, 4096, {.fixed = 4us, .share = 0.6});
  const auto share = [&](std::int64_t columns) {
    return rates.rate(Access::RmsNorm, DType::BF16, columns)->share;
  };
  EXPECT_DOUBLE_EQ(share(64), 0.8);
  EXPECT_NEAR(share(2048), 0.7, 1e-12);
  EXPECT_DOUBLE_EQ(share(1 << 20), 0.6);
  EXPECT_FALSE(rates.rate(Access::Plain, DType::BF16, 0).has_value());
}

TEST(MemoryRatesTest, ATypeWithoutItsOwnRowTakesThatOfItsWidthThenThatOfAll) {
  MemoryRates rates;
  rates.add(Access::Updated, DType::BF16, 0, {.share = 0.5});
  rates.add(Access::Updated, std::nullopt, 0, {.share = 0.9});
  EXPECT_DOUBLE_EQ(rates.rate(Access::Updated, DType::F16, 0)->share, 0.5);
  EXPECT_DOUBLE_EQ(rates.rate(Access::Updated, DType::F32, 0)->share, 0.9);
}

TEST(MemoryRatesTest, EveryKindThatIsNamedWasMeasured) {
  const auto rates = memory_rates("h100");
  for (const Access access : kAllOf<Access>) {
    const auto rate = rates->rate(access, DType::BF16, 4096);
    ASSERT_EQ(rate.has_value(), access != Access::Any) << to_string(access);
    EXPECT_LE(rate.value_or(MemoryRate{}).share, 1) << to_string(access);
  }
  EXPECT_EQ(memory_rates("h100"), memory_rates("a GPU that nobody measured"));
}

TEST(MemoryRatesTest, AWidenedPassOfAMachineTakesItsShareOfTheNominalRate) {
  const Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models/clusters");
  OpModel model{.machine = "h100x8", .compute = cluster.compute};
  schedule::Op op;
  op.dtype = DType::BF16;
  const auto us = [&](Access access) {
    op.work =
        schedule::MemoryWork{.bytes = Bytes(3'350'000'000), .flop = Flop(0), .access = access};
    return to_us(model.price(op).by_class.front());
  };
  EXPECT_NEAR(us(Access::Any), 1000 / 0.8, 0.1);
  EXPECT_NEAR(us(Access::Widened), 2 + 1000 / 0.585, 0.1);
}

// A sum of f32 is read and written, 4 B each, in place of a result of 2 B: 6 B for each of 4,096 x 8,192.
TEST(ProductRatesTest, AProductThatAddsToASumMovesIt) {
  const Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models/clusters");
  OpModel model{.machine = "h100x8", .compute = cluster.compute};
  schedule::Op op;
  op.dtype = DType::BF16;
  const auto us = [&](std::int64_t adds, schedule::Operands operands) {
    op.work = schedule::GemmWork{
        .m = 4096, .n = 8192, .k = 4096, .count = 2, .operands = operands, .adds = adds};
    return to_us(model.price(op).by_class.front());
  };
  for (const auto operands : {schedule::Operands::Own, schedule::Operands::Fp8}) {
    const double moved = 1e6 * seconds_to_move(*cluster.compute, Bytes(2 * 4096 * 8192 * 6));
    EXPECT_NEAR(us(4, operands) - us(0, operands), moved, 0.01);
  }
  EXPECT_EQ(schedule::adding({.m = 4, .n = 8, .k = 2, .adds = 2}, DType::BF16), Bytes(64));
  EXPECT_EQ(schedule::adding({.m = 4, .n = 8, .k = 2}, DType::BF16), Bytes(0));
}

TEST(ProductRatesTest, WhichSideIsNoMultipleOfSixteenBytesDecides) {
  const auto rates = product_rates("h100");
  const auto tera = [&](std::int64_t m, std::int64_t n, std::int64_t k, ProductType type) {
    const auto rate = rates->rate({.m = m, .n = n, .k = k}, type);
    return rate ? rate->count() / 1e12 : 0;
  };
  EXPECT_NEAR(tera(8192, 50'257, 4096, ProductType::Half), 99, 0.1);
  EXPECT_NEAR(tera(8192, 4096, 50'257, ProductType::Half), 144, 0.1);
  EXPECT_NEAR(tera(50'258, 4096, 8192, ProductType::Half), 283, 0.1);
  EXPECT_EQ(tera(8192, 50'304, 4096, ProductType::Half), 0);
  EXPECT_EQ(tera(8192, 7, 4096, ProductType::Half), 0);  // within one tile
  EXPECT_NEAR(tera(4096, 4096, 4096, ProductType::F32), 50.2, 0.1);
  EXPECT_NEAR(tera(512, 512, 512, ProductType::Tf32), 49, 0.5);
  EXPECT_NEAR(tera(8192, 32'001, 4096, ProductType::Tf32), 135, 0.1);
}

// 50,257 words where 50,304 are nine times as fast.
TEST(ProductRatesTest, AnOddVocabularyIsSlowOnAMachine) {
  const Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models/clusters");
  OpModel model{.machine = "h100x8", .compute = cluster.compute};
  schedule::Op op;
  op.dtype = DType::BF16;
  const auto ms = [&](std::int64_t words) {
    op.work = schedule::GemmWork{.m = 8192, .n = words, .k = 4096};
    return to_us(model.price(op).by_class.front()) / 1e3;
  };
  EXPECT_NEAR(ms(50'257), 34.1, 0.2);
  EXPECT_LT(ms(50'304), 6);
}

class GpuBookTest : public ::testing::Test {
 protected:
  std::string written(const std::string& more) {
    const std::string path = ::testing::TempDir() + "gpu_book_" +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                             "_mine.json";
    std::ofstream(path)
        << R"({"schema": "dovetail.gpu/1", "kind": "gpu", "name": "mine", "device": "h100")" << more
        << "}";
    return path;
  }
  Cluster with(const std::string& more) {
    Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models/clusters");
    take(load_gpu_book(written(more)), cluster);
    return cluster;
  }
};

TEST_F(GpuBookTest, WhatItHasReplacesTheShippedRowsAndTheRestStays) {
  const Cluster cluster = with(R"(, "passes": [{"access": "plain", "fixed_us": 1, "share": 0.5}],
      "host": {"kind": "async", "run_op_us": 50, "backward_op_us": 20}, "memory_bytes": 1000)");
  const auto& passes = *cluster.compute->passes;
  EXPECT_DOUBLE_EQ(passes.rate(Access::Plain, DType::BF16, 0)->share, 0.5);
  EXPECT_EQ(passes.rate(Access::Widened, DType::BF16, 0)->share,
            memory_rates("h100")->rate(Access::Widened, DType::BF16, 0)->share);
  EXPECT_EQ(cluster.host.op(schedule::Phase::Forward), 50us);
  EXPECT_EQ(cluster.host.op(schedule::Phase::Backward), 20us);
  EXPECT_EQ(cluster.host.op(schedule::Phase::Optimizer), 50us);
  EXPECT_EQ(cluster.compute->capacity, Bytes(1000));
}

// Between a row of its own and a shipped one nothing is interpolated.
TEST_F(GpuBookTest, ACurveIsItsOwnAsAWhole) {
  const Cluster cluster =
      with(R"(, "passes": [{"access": "rms-norm", "columns": 4096, "fixed_us": 1, "share": 0.3}])");
  EXPECT_DOUBLE_EQ(cluster.compute->passes->rate(Access::RmsNorm, DType::BF16, 1024)->share, 0.3);
}

TEST_F(GpuBookTest, ItsProductsGiveOneFactorOfTheShippedTable) {
  const Duration shipped = gemm_table("h100")->time({.m = 4096, .n = 4096, .k = 4096});
  const Cluster cluster = with(R"(, "products": [{"m": 4096, "n": 4096, "k": 4096, "us": )" +
                               std::to_string(2 * to_us(shipped)) + "}]");
  EXPECT_NEAR(cluster.compute->table_factor, 2, 1e-3);
}

TEST_F(GpuBookTest, RefusesWhatItDoesNotKnowInOneLine) {
  const auto refused = [&](const std::string& more) {
    try {
      static_cast<void>(load_gpu_book(written(more)));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(R"(, "clock": 3)"), ::testing::HasSubstr("/clock: unknown key"));
  EXPECT_THAT(refused(R"(, "passes": [{"access": "sideways", "fixed_us": 1, "share": 1}])"),
              ::testing::HasSubstr("/passes/0/access: expected"));
}

}  // namespace
}  // namespace dovetail::models
