// How near convolutions come to a GPU's memory and tensor cores, in the layout that these read (channels last).
//
//   const auto rates = convolution_rates("h100");    // of models/rates/gemm/convolutions.csv, or of the GPU that was measured
//   rates->rate(convolution, ProductType::Half)      // 0.82 of the memory's rate, 0.60 of the products'
//
// One takes (a^4 + b^4)^(1/4): a = what it moves (schedule/program.h) / (memory_share x nominal rate), b = FLOP / (flop_share x peak), the
// larger of the two but where they are alike. Shares are of a pass, of those that leave out pixels or not, and of the fewer channels, between
// whose measured numbers they are linear in the logarithm; beyond them that of the edge.
//
// Source: 39 convolutions of ResNet-50 at a batch of 128 on one H100, three passes each. Each left out of the fit, the others tell it to 5 % in
// the median, 32 % for one in twenty; strided gradients of inputs to 9 and 19 (scripts/data/fit_convolutions.py). Images of three channels were measured in one size, 7 x 7 on 224 x 224. Leaves out cuDNN's choice
// among algorithms, groups, and images whose channels come first, which are reordered on the way.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include "models/rates/product_rates.h"
#include "schedule/program.h"

namespace dovetail::models {

struct ConvolutionRate {
  double memory_share = 1, flop_share = 1;  // above 0
};

class ConvolutionRates {
 public:
  // REQUIRES: channels and both shares above 0.
  void add(ProductType type, schedule::ConvolutionPass pass, bool strided, double channels,
           ConvolutionRate rate);
  // Absent: nobody measured such.
  [[nodiscard]] std::optional<ConvolutionRate> rate(const schedule::Convolution& convolution,
                                                    ProductType type) const;

 private:
  using Kind = std::tuple<ProductType, schedule::ConvolutionPass, bool>;
  std::map<Kind, std::map<double, ConvolutionRate>> rows_;  // by log2 of channels
};

// Of this GPU, or of the one that was measured where it was not.
std::shared_ptr<const ConvolutionRates> convolution_rates(std::string_view device);

}  // namespace dovetail::models
