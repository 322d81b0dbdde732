// Reads the table of all GPUs once, and finds the curve that a product lies on.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/product_rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>

#include "base/error.h"
#include "models/rates/device_tables.h"
#include "models/rates/gemm_files.h"

namespace dovetail::models {
namespace {

void add_product_row(ProductRates& rates, const Cells& cells) {
  const auto type = word_to<ProductType>(cells[0]);
  DOVETAIL_CHECK(type.has_value()) << "products.csv: " << cells[0];
  rates.add(*type, cells[1], number_of(cells[2]).value(),
            FlopPerSecond(number_of(cells[3]).value() * 1e12));
}

}  // namespace

void ProductRates::add(ProductType type, const std::string& of, double axis, FlopPerSecond rate) {
  DOVETAIL_CHECK(axis > 0 && rate.count() > 0) << of;
  curves_[{type, of}][std::log(axis)] = std::log(rate.count());
}

std::optional<FlopPerSecond> ProductRates::rate(const schedule::GemmWork& gemm,
                                                ProductType type) const {
  constexpr std::int64_t kSmall = 64;  // sides that fit into one tile
  struct Side {
    std::int64_t extent;
    const char* name;
  };
  const std::int64_t aligned = type == ProductType::Half ? 8 : 4;
  const std::int64_t even = type == ProductType::Half ? 2 : 4;
  std::string of = "gflop";
  const double flop = 2 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) *
                      static_cast<double>(gemm.k) * static_cast<double>(gemm.count);
  double axis = flop / 1e9;
  for (const Side& side : std::array{Side{gemm.n, " n"}, Side{gemm.k, " k"}, Side{gemm.m, " m"}}) {
    if (side.extent <= kSmall || side.extent % aligned == 0 || type == ProductType::F32) continue;
    of = (side.extent % even == 0 ? "even" : "odd") + std::string(side.name);
    axis = static_cast<double>(std::min({gemm.m, gemm.n, gemm.k}));
    break;
  }
  const auto found = curves_.find({type, of});
  if (found == curves_.end()) return std::nullopt;
  const auto mean = [](double below, double above, double share) {
    return std::lerp(below, above, share);
  };
  return FlopPerSecond(std::exp(value_at(found->second, std::log(axis), std::identity(), mean)));
}

std::shared_ptr<const ProductRates> product_rates(std::string_view device) {
  static const auto kDevices = read_device_tables<ProductRates>(products_file(), add_product_row);
  const auto found = kDevices.find(device);
  return found == kDevices.end() ? nullptr : found->second;
}

}  // namespace dovetail::models
