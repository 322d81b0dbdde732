// How far a measured time strays from its median.
//
//   Spread spread = spread_of(us(100), us(95), us(110));    // 0.95 .. 1.10
//   spread.draw(random)                                     // a factor for the median
//
// Quantiles are kept as shares of the median, so that they can be carried over to times that were
// derived from it. A draw is the inverse of a piecewise linear distribution through p10, the median
// and p90, continued beyond them: it never leaves the tails heavier than that line.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/random.h"
#include "base/units.h"

#include <algorithm>
#include <optional>

namespace dovetail::models {

struct Spread {
  double p10 = 1;  // 10th percentile / median
  double p90 = 1;  // 90th percentile / median

  [[nodiscard]] bool known() const { return p10 != 1 || p90 != 1; }
  // The quantile `u` in [0, 1], as a share of the median; not below 0.
  [[nodiscard]] double at(double u) const {
    const double slope = u < 0.5 ? (1 - p10) / 0.4 : (p90 - 1) / 0.4;
    return std::max(0.0, 1 + slope * (u - 0.5));
  }
  double draw(Random& random) const { return at(random.uniform()); }
  friend bool operator==(const Spread&, const Spread&) = default;
};

// REQUIRES: median > 0. A quantile that was not measured is the median; one on the wrong side of it
// (p10 above, p90 below: quantiles of another sample) counts as the median too.
inline Spread spread_of(Duration median, std::optional<Duration> p10, std::optional<Duration> p90) {
  const auto share = [median](std::optional<Duration> time) {
    return time ? static_cast<double>(time->count()) / static_cast<double>(median.count()) : 1.0;
  };
  return {.p10 = std::min(1.0, share(p10)), .p90 = std::max(1.0, share(p90))};
}

}  // namespace dovetail::models
