// How long preemptions are, from moments that met some of them.
//
// A moment that meets a preemption tells what was left of it and the gap since the core was last seen. An
// preemption of length L that ends `left` after the moment began in that gap if left <= L <= left + gap. With
// preemptions of length L beginning at the rate f(L), the likelihood of all moments is
//
//   product over those met of  sum over L of f(L) [left <= L <= left + gap]
//   times exp(- sum over all gaps and all L of f(L) min(L, gap))
//
// because in a gap those are met that begin in its last min(L, gap). The f that makes it largest is found by
// expectation maximisation, which for such Poisson rates is the step f(L) <- f(L) / exposure(L) * sum over
// those met of P(L | met). Lengths are taken from a geometric grid, 4 % apart. A few dozen steps from a flat
// start are enough; more of them would only fit noise.
//
// Source: Shepp and Vardi, Maximum likelihood reconstruction for emission tomography, 1982. Range: preemptions
// apart by more than a gap; where they lie closer two of them are taken for one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::testbed {

// A preemption that a moment met.
struct Met {
  std::int64_t left_ns = 0;
  std::int64_t gap_ns = 0;  // between the last time that the core was seen and the moment
};

class PreemptionLengths {
 public:
  // `gaps`: of all moments, those that met nothing too. Shorter preemptions than `shortest` are not noticed.
  PreemptionLengths(std::span<const Met> met, std::vector<std::int64_t> gaps, Duration shortest);

  // For how long it is expected to have lasted already. Where nothing is known: as long as was left of it,
  // which is right in the mean for a moment anywhere in a preemption, at most half the gap.
  [[nodiscard]] Duration lasted(const Met& met) const;

 private:
  // The lengths that it may have had: first and behind the last.
  struct Range {
    std::size_t first = 0;
    std::size_t end = 0;
  };
  [[nodiscard]] Range range_of(const Met& met) const;

  std::vector<double> lengths_ns_;  // rising
  std::vector<double> rates_;       // f, up to a factor
};

}  // namespace dovetail::testbed
