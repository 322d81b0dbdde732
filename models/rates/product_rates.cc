// Reads the table of all GPUs once, and finds the curve that a product lies on.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/product_rates.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>

#include "base/error.h"
#include "models/rates/gemm_files.h"

namespace dovetail::models {
namespace {

using ProductRatesByDevice = std::map<std::string, std::shared_ptr<ProductRates>, std::less<>>;

double positive_number(const std::string& cell) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  DOVETAIL_CHECK(error == std::errc() && value > 0) << "products.csv: " << cell;
  return value;
}

ProductRatesByDevice read_product_rates() {
  ProductRatesByDevice devices;
  std::istringstream text{std::string(products_file())};
  std::string line;
  std::getline(text, line);  // the names of the columns
  while (std::getline(text, line)) {
    std::istringstream row(line);
    std::string device, type, of, axis, rate;
    for (std::string* cell : {&device, &type, &of, &axis, &rate}) std::getline(row, *cell, ',');
    const auto known = word_to<ProductType>(type);
    DOVETAIL_CHECK(known.has_value()) << "products.csv: " << line;
    std::shared_ptr<ProductRates>& rates = devices[device];
    if (!rates) rates = std::make_shared<ProductRates>();
    rates->add(*known, of, positive_number(axis), FlopPerSecond(positive_number(rate) * 1e12));
  }
  return devices;
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
  const std::map<double, double>& curve = found->second;
  const auto above = curve.lower_bound(std::log(axis));
  if (above == curve.begin()) return FlopPerSecond(std::exp(above->second));
  const auto below = std::prev(above);
  if (above == curve.end()) return FlopPerSecond(std::exp(below->second));
  const double share = (std::log(axis) - below->first) / (above->first - below->first);
  return FlopPerSecond(std::exp(std::lerp(below->second, above->second, share)));
}

std::shared_ptr<const ProductRates> product_rates(std::string_view device) {
  static const ProductRatesByDevice kDevices = read_product_rates();
  const auto found = kDevices.find(device);
  return found == kDevices.end() ? nullptr : found->second;
}

}  // namespace dovetail::models
