// Estimates how long preemptions are by expectation maximisation: over a grid of lengths, each
// observed preemption is shared out among the lengths that explain it, and the rates of the
// lengths are set to what they got, until they stop changing.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/noise/preemption_lengths.h"

#include <algorithm>
#include <cmath>

namespace dovetail::testbed {
namespace {

constexpr std::size_t kFewest = 20;  // met preemptions from which lengths can be told
constexpr double kApart = 1.04;
constexpr int kSteps = 40;

// For each length L, rising, the sum of min(L, gap) over the gaps.
std::vector<double> exposures(std::span<const double> lengths, std::vector<std::int64_t> gaps) {
  std::sort(gaps.begin(), gaps.end());
  std::vector<double> sums;
  std::size_t shorter = 0;  // gaps below L
  double total = 0;         // of those
  for (const double length : lengths) {
    while (shorter < gaps.size() && static_cast<double>(gaps[shorter]) < length) {
      total += static_cast<double>(gaps[shorter++]);
    }
    sums.push_back(total + length * static_cast<double>(gaps.size() - shorter));
  }
  return sums;
}

}  // namespace

PreemptionLengths::PreemptionLengths(std::span<const Met> met, std::vector<std::int64_t> gaps,
                                     Duration shortest) {
  if (met.size() < kFewest) return;
  double longest = 0;
  for (const Met& one : met) {
    longest = std::max(longest, static_cast<double>(one.left_ns + one.gap_ns));
  }
  const auto least = static_cast<double>(shortest.count());
  for (double length = least; length <= longest; length *= kApart) lengths_ns_.push_back(length);
  const std::vector<double> exposed = exposures(lengths_ns_, std::move(gaps));
  std::vector<Range> ranges;
  for (const Met& one : met) ranges.push_back(range_of(one));
  rates_.assign(lengths_ns_.size(), 1);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> expected(rates_.size(), 0);
    for (const Range& range : ranges) {
      double sum = 0;
      for (std::size_t i = range.first; i < range.end; ++i) sum += rates_[i];
      if (sum <= 0) continue;
      for (std::size_t i = range.first; i < range.end; ++i) expected[i] += rates_[i] / sum;
    }
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      rates_[i] = exposed[i] <= 0 ? 0 : expected[i] / exposed[i];
    }
  }
}

PreemptionLengths::Range PreemptionLengths::range_of(const Met& met) const {
  const auto index_of = [this](double length) {
    return static_cast<std::size_t>(
        std::lower_bound(lengths_ns_.begin(), lengths_ns_.end(), length) - lengths_ns_.begin());
  };
  return {.first = index_of(static_cast<double>(met.left_ns)),
          .end = index_of(static_cast<double>(met.left_ns + met.gap_ns))};
}

Duration PreemptionLengths::lasted(const Met& met) const {
  const Range range = range_of(met);
  double rates = 0;
  double sum = 0;
  for (std::size_t i = range.first; i < range.end && i < rates_.size(); ++i) {
    rates += rates_[i];
    sum += rates_[i] * (lengths_ns_[i] - static_cast<double>(met.left_ns));
  }
  return Duration(rates > 0 ? std::llround(sum / rates) : std::min(met.left_ns, met.gap_ns / 2));
}

}  // namespace dovetail::testbed
