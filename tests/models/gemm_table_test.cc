// Measured matrix products: what a table gives back, what lies between its rows, and how far that is from rows left out.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/gemm_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/clusters/cluster.h"
#include "models/rates/gemm_files.h"
#include "models/rates/op_model.h"

namespace dovetail::models {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

schedule::GemmWork gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count = 1) {
  return {.m = m, .n = n, .k = k, .count = count};
}

double us(const GemmTable& table, const schedule::GemmWork& work) {
  return to_us(table.time(work));
}

// Twice the size takes eight times as long; one place is missing.
const char* const kRows =
    "m,n,k,us\n256,256,256,10\n512,256,256,20\n256,512,256,20\n512,512,256,40\n"
    "256,256,512,20\n512,256,512,40\n256,512,512,40\n";

TEST(GemmTableTest, GivesBackWhatWasMeasured) {
  const GemmTable table("small", read_gemms("small.csv", kRows));
  EXPECT_NEAR(us(table, gemm(256, 256, 256)), 10, 0.001);
  EXPECT_NEAR(us(table, gemm(512, 512, 256)), 40, 0.001);
  EXPECT_NEAR(us(table, gemm(256, 512, 512)), 40, 0.001);
}

TEST(GemmTableTest, LiesBetweenItsNeighboursAndGrowsBeyondTheGrid) {
  const GemmTable table("small", read_gemms("small.csv", kRows));
  EXPECT_GT(us(table, gemm(384, 256, 256)), 10);
  EXPECT_LT(us(table, gemm(384, 256, 256)), 20);
  const double hole = us(table, gemm(512, 512, 512));
  EXPECT_GT(hole, 50);
  EXPECT_LT(hole, 110);
  EXPECT_NEAR(us(table, gemm(51'200, 512, 256)) / us(table, gemm(25'600, 512, 256)), 2, 0.1);
  EXPECT_EQ(table.time(gemm(128, 256, 256, 4)), table.time(gemm(512, 256, 256)));
}

// A product of zeros takes less power than one of other numbers, so its clock does not fall: 0.95 of A100's peak, 0.84 of H100's.
TEST(GemmTableTest, LargeShippedProductsAreNotOfZeros) {
  for (const std::string device : {"a100", "h100", "h200", "b200", "gb200", "gb300", "l40s"}) {
    const Cluster cluster = load_cluster(device + "x8", DOVETAIL_SOURCE_DIR "/models/clusters");
    const double peak = cluster.compute->gemm_peak.at(schedule::DType::BF16).count();
    const double seconds = us(*gemm_table(device), gemm(16384, 16384, 32768)) / 1e6;
    EXPECT_LT(2 * 16384. * 16384 * 32768 / seconds / peak, 0.83) << device;
  }
}

TEST(GemmTableTest, ABadRowIsNamed) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      static_cast<void>(read_gemms("x.csv", text));
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(message("m,n,k,us\n1,2,3,4\n1,2,3\n"), HasSubstr("x.csv:3: expected m,n,k,us"));
  EXPECT_THAT(message("m,n,k,us\n1,2,3,-4\n"), HasSubstr("x.csv:2"));
  EXPECT_THAT(message("m,n,k,us\n1,2,3,4,5\n"), HasSubstr("x.csv:2"));
  EXPECT_THAT(message("m,n,k,us\n"), HasSubstr("x.csv: expected rows"));
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

// Every tenth row left out in turn would be ten tables; one of them will do.
std::vector<double> errors_on_a_tenth(const GemmFile& file) {
  const std::vector<MeasuredGemm> rows = read_gemms(std::string(file.device), file.text);
  std::vector<MeasuredGemm> kept;
  std::vector<MeasuredGemm> left_out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (i * 7919 % 10 == 3 ? left_out : kept).push_back(rows[i]);
  }
  const GemmTable table("kept", kept);
  std::vector<double> errors;
  for (const MeasuredGemm& row : left_out) {
    const auto extent = [&](std::size_t i) { return static_cast<std::int64_t>(row.extents[i]); };
    errors.push_back(std::abs(us(table, gemm(extent(0), extent(1), extent(2))) / row.us - 1));
  }
  return errors;
}

TEST(GemmTableTest, PredictsATenthOfItsRowsFromTheOthers) {
  for (const GemmFile& file : gemm_files()) {
    const std::vector<double> errors = errors_on_a_tenth(file);
    EXPECT_GT(errors.size(), 200U) << file.name;
    EXPECT_LT(quantile(errors, 0.5), 0.05) << file.name;
    EXPECT_LT(quantile(errors, 0.95), file.name == "l40s" ? 0.20 : 0.17) << file.name;
  }
}

TEST(GemmTableTest, EveryShippedTableIsFound) {
  EXPECT_THAT(gemm_devices(), Not(IsEmpty()));
  for (const std::string& device : gemm_devices()) {
    ASSERT_NE(gemm_table(device), nullptr) << device;
    EXPECT_EQ(gemm_table(device)->device(), device);
    EXPECT_EQ(gemm_table(device), gemm_table(device));
  }
  EXPECT_EQ(gemm_table("h999"), nullptr);
}

// On the machines whose file names a table products of bf16 take its time, all else the peak rates.
TEST(GemmTableTest, PricesHalfPrecisionProductsOfAMachine) {
  const Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models/clusters");
  OpModel model{.machine = "h100x8", .compute = cluster.compute};
  schedule::Op op;
  op.work = gemm(4096, 4096, 4096);
  op.dtype = schedule::DType::BF16;
  // One H100 took 1.025 times the table's time.
  EXPECT_EQ(cluster.compute->table_factor, 1.025);
  const Duration measured = stretched(gemm_table("h100")->time(gemm(4096, 4096, 4096)), 1.025);
  EXPECT_EQ(model.price(op).by_class.front(), measured);
  model.compute->products_stretch = 2;
  EXPECT_NEAR(to_us(model.price(op).by_class.front()), 2 * to_us(measured), 0.01);
  op.dtype = schedule::DType::F32;
  EXPECT_GT(model.price(op).by_class.front(), measured);
}

// 256 experts with 128 rows each: 7.5 GB of weights, however few rows there are.
TEST(GemmTableTest, ProductsOfManyExpertsMoveAllTheirWeights) {
  const Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models/clusters");
  OpModel model{.machine = "h100x8", .compute = cluster.compute};
  model.compute->table_factor = 1;
  const auto time = [&model](const schedule::GemmWork& work) {
    schedule::Op op;
    op.dtype = schedule::DType::BF16;
    op.work = work;
    return model.price(op).by_class.front();
  };
  const schedule::GemmWork experts = gemm(128, 2048, 7168, 256);
  const double weights_us = 256 * 2.0 * 2048 * 7168 / (0.8 * cluster.compute->memory.count()) * 1e6;
  EXPECT_GT(to_us(time(experts)), weights_us);
  EXPECT_LT(to_us(time(experts)), 1.3 * weights_us);
  EXPECT_LT(us(*gemm_table("h100"), experts), weights_us);  // one product of as many rows
  // In kernels of their own they take as long as so many products of that size, one after another.
  schedule::GemmWork separate = experts;
  separate.separate = true;
  EXPECT_EQ(time(separate), 256 * gemm_table("h100")->time(gemm(128, 2048, 7168)));
  EXPECT_GT(time(separate), time(experts));
  // With many rows each, moving the weights is nothing.
  const schedule::GemmWork few = gemm(8192, 2048, 7168, 4);
  EXPECT_EQ(time(few), gemm_table("h100")->time(few));
}

schedule::Op product_of(schedule::Operands operands) {
  schedule::Op op;
  op.name = "up";
  op.dtype = schedule::DType::BF16;
  schedule::GemmWork work = gemm(8192, 8192, 8192);
  work.operands = operands;
  op.work = work;
  return op;
}

Duration time_on(const std::string& machine, schedule::Operands operands) {
  const Cluster cluster = load_cluster(machine, DOVETAIL_SOURCE_DIR "/models/clusters");
  const OpModel model{.machine = machine, .compute = cluster.compute};
  return model.price(product_of(operands)).by_class.front();
}

// Less than the ratio of peaks, two and four, since casting is contained.
TEST(GemmTableTest, NarrowerProductsTakeTheirOwnMeasuredTimes) {
  using schedule::Operands;
  EXPECT_EQ(time_on("b200x8", Operands::Fp8),
            gemm_table("b200", Operands::Fp8)->time(gemm(8192, 8192, 8192)));
  const double fp8 =
      to_us(time_on("b200x8", Operands::Own)) / to_us(time_on("b200x8", Operands::Fp8));
  const double fp4 =
      to_us(time_on("b200x8", Operands::Own)) / to_us(time_on("b200x8", Operands::Fp4));
  EXPECT_GT(fp8, 1.2);
  EXPECT_LT(fp8, 2);
  EXPECT_GT(fp4, fp8);
  EXPECT_LT(fp4, 4);
}

TEST(GemmTableTest, AMachineWithoutUnitsForThemSaysWhatItHas) {
  try {
    static_cast<void>(time_on("a100x8", schedule::Operands::Fp8));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("op up is a GEMM of fp8, but compute.gemm.flop_per_s has "
                                        "only f32, f16, bf16, tf32"));
  }
}

// 2 x 8192^3 FLOP at 0.82 of 19.5 and of 156 TFLOP/s.
TEST(GemmTableTest, F32IsMultipliedWithoutTensorCoresUnlessTheProductSaysSo) {
  const auto ms_on_a100 = [](schedule::Operands operands) {
    schedule::Op op = product_of(operands);
    op.dtype = schedule::DType::F32;
    const Cluster cluster = load_cluster("a100x8", DOVETAIL_SOURCE_DIR "/models/clusters");
    OpModel model{.machine = "a100x8", .compute = cluster.compute};
    model.compute->efficiency = 0.82;
    return to_us(model.price(op).by_class.front()) / 1e3;
  };
  EXPECT_NEAR(ms_on_a100(schedule::Operands::Own), 68.76, 0.01);
  EXPECT_NEAR(ms_on_a100(schedule::Operands::Tf32), 8.60, 0.01);
}

// A kernel was measured as the machine multiplied f32 on that day.
TEST(GemmTableTest, AMeasuredKernelServesF32InEitherWay) {
  schedule::Op op = product_of(schedule::Operands::Tf32);
  op.dtype = schedule::DType::F32;
  const MeasuredKernel kernel{
      .dtype = op.dtype, .work = gemm(8192, 8192, 8192), .time = from_us(7)};
  EXPECT_EQ(KernelTable({kernel}, std::nullopt).time(op), from_us(7));
  op.dtype = schedule::DType::BF16;
  EXPECT_EQ(KernelTable({kernel}, std::nullopt).time(op), std::nullopt);
}

// Without a rate of tf32 it is that of f32.
TEST(GemmTableTest, AMachineWithoutTf32MultipliesF32) {
  Roofline roofline;
  roofline.gemm_peak[schedule::DType::F32] = FlopPerSecond(1e13);
  const auto rate = roofline.peak(schedule::DType::F32, schedule::Operands::Tf32);
  ASSERT_TRUE(rate.has_value());
  EXPECT_EQ(rate->count(), 1e13);
  EXPECT_FALSE(roofline.peak(schedule::DType::F32, schedule::Operands::Fp8).has_value());
}

// A machine written by hand has peaks alone.
TEST(GemmTableTest, WithoutATableNarrowerProductsTakeTheirPeak) {
  OpModel model{.machine = "own", .compute = Roofline{}};
  model.compute->gemm_peak[schedule::DType::BF16] = FlopPerSecond(1e15);
  model.compute->narrow_peak[schedule::Operands::Fp8] = FlopPerSecond(2e15);
  model.compute->memory = BytesPerSecond(1e13);
  model.compute->efficiency = 0.5;
  const double us = to_us(model.price(product_of(schedule::Operands::Fp8)).by_class.front());
  EXPECT_NEAR(us, 2 * 8192. * 8192 * 8192 / 1e15 * 1e6, 0.01);
  EXPECT_EQ(product_of(schedule::Operands::Fp8).bytes(), Bytes(4 * 8192 * 8192));  // 1 + 1 + 2
  EXPECT_EQ(product_of(schedule::Operands::Fp4).bytes(), Bytes(3 * 8192 * 8192));
}

}  // namespace
}  // namespace dovetail::models
