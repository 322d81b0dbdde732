// Matrix products that the grids of gemm_table.h do not hold: sides that are no multiple of 16 bytes, f32 and TF32.
//
//   const auto rates = product_rates("h100");      // of models/rates/gemm/products.csv; null: not measured there
//   rates->rate(gemm, ProductType::Half)                    // 99 TFLOP/s where n is 50,257; nothing where all sides are aligned
//
// Tensor cores read 16 bytes at once. Where rows do not begin at such bounds kernels read by 4 or 2 bytes: `even` sides, multiples of 4
// bytes, and `odd` ones. Which of m, n and k it is decides, and the smallest of the three, between whose measured values the rate is linear
// in logarithms. f32 and TF32 with aligned sides go by the product's FLOP likewise. Leaves out shapes: of one FLOP count rates differ by
// up to a sixth.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "base/words.h"
#include "schedule/program.h"

namespace dovetail::models {

// What is multiplied: bf16 and f16; f32 as TF32; f32 without tensor cores.
enum class ProductType { Half, Tf32, F32 };
constexpr auto words_of(ProductType) { return words("half", "tf32", "f32"); }

class ProductRates {
 public:
  // `of`: "gflop", or "odd" or "even" and the side. REQUIRES: axis and rate above 0.
  void add(ProductType type, const std::string& of, double axis, FlopPerSecond rate);
  // As if no row of it had been added.
  void forget(ProductType type, const std::string& of) { curves_.erase({type, of}); }
  // Nothing: such products are not known apart.
  [[nodiscard]] std::optional<FlopPerSecond> rate(const schedule::GemmWork& gemm,
                                                  ProductType type) const;

 private:
  std::map<std::pair<ProductType, std::string>, std::map<double, double>>
      curves_;  // by log of the axis: log of FLOP/s
};

// Null: not measured there.
std::shared_ptr<const ProductRates> product_rates(std::string_view device);

}  // namespace dovetail::models
