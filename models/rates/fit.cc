// Weighted least squares for one line with coefficients that must not be negative: solved in
// closed form, and where the free solution has a negative coefficient, the better one of the two
// solutions on the boundary.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/fit.h"

#include "base/error.h"

#include <Eigen/Dense>

#include <algorithm>
#include <cmath>
#include <vector>

namespace dovetail::models {
namespace {

// The normal equations of rows (1 / time, bytes / time) against 1, so that a row's error is
// relative. Both columns are scaled to length 1: their raw lengths differ by many decades. Sums
// over rows of fixed size keep Eigen's wide reductions out, about which g++ 12 warns falsely (GCC
// bug 105593).
struct NormalEquations {
  Eigen::Matrix2d matrix = Eigen::Matrix2d::Zero();
  Eigen::Vector2d right = Eigen::Vector2d::Zero();
};

NormalEquations normal_equations(std::span<const TimedBytes> samples) {
  NormalEquations sums;
  for (const TimedBytes& sample : samples) {
    const auto time = static_cast<double>(sample.time.count());
    const Eigen::Vector2d row(1 / time, static_cast<double>(sample.bytes.count()) / time);
    sums.matrix += row * row.transpose();
    sums.right += row;
  }
  return sums;
}

// (alpha in ns, beta in ns per byte) of the best fit with both coefficients >= 0.
Eigen::Vector2d solve_non_negative(const NormalEquations& sums) {
  const Eigen::Vector2d scale(1 / std::sqrt(sums.matrix(0, 0)), 1 / std::sqrt(sums.matrix(1, 1)));
  const Eigen::Matrix2d matrix = scale.asDiagonal() * sums.matrix * scale.asDiagonal();
  const Eigen::Vector2d right = scale.cwiseProduct(sums.right);
  Eigen::Vector2d best = matrix.ldlt().solve(right);
  if (best.minCoeff() < 0) {
    // One coefficient is 0. The other is its column's projection, which removes right^2 from the
    // squared error and is positive, as all entries are.
    const Eigen::Index kept = right(0) > right(1) ? 0 : 1;
    best = Eigen::Vector2d::Zero();
    best(kept) = right(kept);
  }
  return best.cwiseProduct(scale);
}

}  // namespace

AlphaBetaFit fit_alpha_beta(std::span<const TimedBytes> samples) {
  DOVETAIL_CHECK(samples.size() >= 2) << samples.size() << " samples";
  const auto [least, most] = std::ranges::minmax(samples, {}, &TimedBytes::bytes);
  DOVETAIL_CHECK(least.bytes < most.bytes) << "all samples have " << most.bytes;
  DOVETAIL_CHECK(least.bytes >= Bytes(0)) << least.bytes;
  for (const TimedBytes& sample : samples) {
    DOVETAIL_CHECK(sample.time > Duration{}) << "no time at " << sample.bytes;
  }
  const Eigen::Vector2d coefficients = solve_non_negative(normal_equations(samples));

  AlphaBetaFit fit;
  fit.line = {from_ns(coefficients(0)), coefficients(1)};
  std::vector<double> residuals;
  for (const TimedBytes& sample : samples) {
    const double predicted =
        coefficients(0) + coefficients(1) * static_cast<double>(sample.bytes.count());
    residuals.push_back(std::abs(predicted / static_cast<double>(sample.time.count()) - 1));
  }
  std::ranges::sort(residuals);
  const std::size_t half = residuals.size() / 2;
  fit.median_residual =
      residuals.size() % 2 == 1 ? residuals[half] : (residuals[half - 1] + residuals[half]) / 2;
  fit.max_residual = residuals.back();
  return fit;
}

}  // namespace dovetail::models
