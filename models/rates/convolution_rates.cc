// Reads the table of all GPUs once, and looks a convolution up in it.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/convolution_rates.h"

#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/words.h"
#include "models/rates/device_tables.h"
#include "models/rates/gemm_files.h"
#include "models/rates/memory_rates.h"

namespace dovetail::models {
namespace {

void add_convolution_row(ConvolutionRates& rates, const Cells& cells) {
  const auto type = word_to<ProductType>(cells[0]);
  const auto pass = word_to<schedule::ConvolutionPass>(cells[1]);
  DOVETAIL_CHECK(type && pass) << "convolutions.csv: " << cells[0] << ' ' << cells[1];
  const std::optional<double> only = number_of(cells[2]);  // absent: both
  for (const bool strided : {false, true}) {
    if (only && (*only != 0) != strided) continue;
    rates.add(*type, *pass, strided, number_of(cells[3]).value(),
              {number_of(cells[4]).value(), number_of(cells[5]).value()});
  }
}

}  // namespace

void ConvolutionRates::add(ProductType type, schedule::ConvolutionPass pass, bool strided,
                           double channels, ConvolutionRate rate) {
  DOVETAIL_CHECK(channels > 0 && rate.memory_share > 0 && rate.flop_share > 0) << channels;
  rows_[{type, pass, strided}][std::log2(channels)] = rate;
}

std::optional<ConvolutionRate> ConvolutionRates::rate(const schedule::Convolution& convolution,
                                                      ProductType type) const {
  const auto found = rows_.find({type, convolution.pass, convolution.strided});
  if (found == rows_.end()) return std::nullopt;
  const auto mean = [](const ConvolutionRate& below, const ConvolutionRate& above, double part) {
    return ConvolutionRate{std::lerp(below.memory_share, above.memory_share, part),
                           std::lerp(below.flop_share, above.flop_share, part)};
  };
  return value_at(found->second, std::log2(static_cast<double>(convolution.channels)),
                  std::identity(), mean);
}

std::shared_ptr<const ConvolutionRates> convolution_rates(std::string_view device) {
  static const auto kDevices =
      read_device_tables<ConvolutionRates>(convolutions_file(), add_convolution_row);
  const auto found = kDevices.find(measured_for(device));
  return found == kDevices.end() ? nullptr : found->second;
}

}  // namespace dovetail::models
