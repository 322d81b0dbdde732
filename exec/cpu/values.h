// The known values of gradients: what each rank writes, and what every rank must hold after the
// reduction.
//
// Element i of gradient g at step s on rank r is a small integer,
//     value(g, s, r, i) = pattern(g, s, r)[i mod 256] + salt(g, i div 256)
// with pattern in -2048..2047 and salt in 0..2047, both by hashing. So
//   - every partial sum over up to 4096 ranks is an integer below 2^24: exact in fp32 in any order;
//   - swapped gradients, data of an earlier step, unreduced or twice reduced data and shifted
//   offsets
//     all show, because the value depends on g, s, r and i (the salt catches shifts by whole
//     periods);
//   - filling and checking stream at the speed of memory: one addition per element.
// The average is defined as sum * (1 / n), both rounded to fp32; it is exact when n is a power of
// two.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/program.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dovetail::exec::cpu {

inline constexpr std::size_t kPatternPeriod = 256;
inline constexpr std::int64_t kMostRanks = 4096;  // beyond, sums would no longer be exact

// Who writes. A program may write a gradient several times before it is complete: `writes_left`
// is 0 at the last write, and earlier writes leave other values, so that a collective launched too
// early is found out.
struct Write {
  TensorId gradient;
  std::int32_t step = 0;
  Rank rank;
  std::int32_t writes_left = 0;
};

void fill(const Write& write, std::span<float> data);

// What a comparison found.
struct Difference {
  std::int64_t wrong = 0;
  std::size_t first = 0;  // index of the first wrong element; meaningless when wrong == 0
};

// The exact result of reducing one gradient of one step.
class Reduced {
 public:
  // REQUIRES: 1 <= ranks.size() <= kMostRanks.
  Reduced(TensorId gradient, std::int32_t step, std::span<const Rank> ranks, schedule::ReduceOp op);

  [[nodiscard]] float at(std::size_t index) const;
  // Compares every element; NaN is wrong.
  [[nodiscard]] Difference compare(std::span<const float> data) const;

 private:
  TensorId gradient_;
  float ranks_;
  float scale_;                              // 1, or 1 / n for an average
  std::array<float, kPatternPeriod> sum_{};  // of the patterns
};

}  // namespace dovetail::exec::cpu
