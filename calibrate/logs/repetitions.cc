// Compares the medians of several measurements size by size.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/repetitions.h"

#include "calibrate/logs/collective_log.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

namespace dovetail::imports {
namespace {

Duration median_time(std::vector<Duration> times) {
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// At the sizes that several measurements have, rising.
std::vector<Gap> gaps_between(const std::vector<std::span<const TimedSize>>& measurements) {
  std::map<Bytes, std::map<std::size_t, std::vector<Duration>>> sizes;
  for (std::size_t i = 0; i < measurements.size(); ++i) {
    for (const TimedSize& one : measurements[i]) sizes[one.bytes][i].push_back(one.time);
  }
  struct Timed {
    Duration time{};
    std::size_t of = 0;
  };
  std::vector<Gap> gaps;
  for (const auto& [bytes, by_measurement] : sizes) {
    if (by_measurement.size() < 2) continue;
    std::vector<Timed> times;
    for (const auto& [of, all] : by_measurement) times.push_back({median_time(all), of});
    std::ranges::stable_sort(times, {}, &Timed::time);
    const std::size_t aside = times.size() / 4;
    const Timed& fast = times[aside];
    const Timed& slow = times[times.size() - 1 - aside];
    gaps.push_back({bytes, fast.time, slow.time, fast.of, slow.of});
  }
  return gaps;
}

double middle_factor(std::vector<Gap> gaps) {
  std::ranges::sort(gaps, {}, factor_of);
  return factor_of(gaps[gaps.size() / 2]);
}

std::string fixed_point(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

}  // namespace

double factor_of(const Gap& gap) {
  return static_cast<double>(gap.slow.count()) / static_cast<double>(gap.fast.count());
}

std::optional<Gap> contradiction(const std::vector<std::span<const TimedSize>>& measurements,
                                 double factor) {
  const std::vector<Gap> gaps = gaps_between(measurements);
  if (gaps.empty()) return std::nullopt;
  const std::size_t large = (gaps.size() + 3) / 4;
  const std::vector<Gap> largest(gaps.end() - static_cast<std::ptrdiff_t>(large), gaps.end());
  if (middle_factor(gaps) <= factor && middle_factor(largest) <= factor) return std::nullopt;
  return *std::ranges::max_element(gaps, {}, factor_of);
}

std::vector<Gap> contradictory_sizes(const std::vector<std::span<const TimedSize>>& measurements,
                                     double factor) {
  std::vector<Gap> gaps = gaps_between(measurements);
  std::erase_if(gaps, [&](const Gap& gap) { return factor_of(gap) <= factor; });
  return gaps;
}

std::string in_words(const Gap& gap, schedule::Collective collective, std::int64_t ranks) {
  const double factor = bus_factor(collective, ranks);
  const auto busbw = [&](Duration time) {
    return fixed_point(algorithm_bandwidth(gap.bytes, time) * factor);
  };
  return to_string(gap.bytes) + " takes " + to_string(gap.fast) + " and " + to_string(gap.slow) +
         " (" + busbw(gap.fast) + " and " + busbw(gap.slow) + " GB/s busbw)";
}

}  // namespace dovetail::imports
