// The size of an A/B test by the normal approximation.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/trial.h"

#include <algorithm>
#include <cmath>

namespace dovetail::diagnose {

std::optional<std::int64_t> steps_to_see(Duration gain, const std::vector<Duration>& steps) {
  constexpr std::size_t kFewest = 3;
  constexpr double kQuantiles = 1.96 + 0.84;
  constexpr double kMost = 1e9;
  if (steps.size() < kFewest || gain <= Duration{}) return std::nullopt;
  double sum = 0;
  for (const Duration step : steps) sum += to_us(step);
  const auto count = static_cast<double>(steps.size());
  double squares = 0;
  for (const Duration step : steps) squares += std::pow(to_us(step) - sum / count, 2);
  const double needed =
      2 * kQuantiles * kQuantiles * squares / (count - 1) / std::pow(to_us(gain), 2);
  return std::max<std::int64_t>(2, static_cast<std::int64_t>(std::ceil(std::min(needed, kMost))));
}

}  // namespace dovetail::diagnose
