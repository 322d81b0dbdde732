// How late the latest of n ranks is to be expected: the mean of the largest of n normal values, as an integral.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/statistics.h"

#include <cmath>

namespace dovetail {

double expected_maximum(std::int64_t n) {
  if (n <= 1) return 0;
  // Mean of the maximum = integral of x d(F^n) with F the normal distribution; midpoint rule on 1 -
  // F^n and F^n.
  constexpr double kLimit = 12;
  constexpr int kSteps = 4800;
  const double width = kLimit / kSteps;
  double mean = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double x = (i + 0.5) * width;
    const auto power = [&](double at) {
      return std::pow(0.5 * std::erfc(-at / std::sqrt(2.0)), static_cast<double>(n));
    };
    mean += (1 - power(x) - power(-x)) * width;
  }
  return mean;
}

}  // namespace dovetail
