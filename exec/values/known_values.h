// The known values of tensors: what each rank writes, and what sums of them must be.
//
// Element i of tensor t at step s on rank r is a small integer,
//     value(t, s, r, i) = pattern(t, s, r)[i mod 256] + salt(t, i div 256)
// with pattern in -2048..2047 and salt in 0..2047, both by hashing (pattern.h: narrower types have smaller ranges);
// times the loss factor in force, where there is one. So
//   - every partial sum over up to 4096 ranks and micro-steps is an integer below 2^24: exact in
//     fp32 in any order, also times powers of two;
//   - swapped tensors, data of an earlier step or micro-step, unreduced or twice reduced data and
//     shifted offsets all show, because the value depends on t, s, r and i (the salt catches shifts
//     by whole periods);
//   - filling and checking stream at the speed of memory: one addition per element.
// With other factors (averages over 3 ranks) results may differ by rounding: expected.h says by how much.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/values/pattern.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::exec::values {

inline constexpr std::int64_t kMostRanks = 4096;  // beyond, sums would no longer be exact

// On a processor: values for numbers of this type, float or one that is made of a float (REQUIRES: two bytes are bf16).
template <class Number>
void fill(const KnownWrite& write, std::int32_t step, std::span<Number> data) {
  constexpr std::int32_t kBits = pattern_bits(sizeof(Number) == 2 ? Element::BF16 : Element::F32);
  const auto count = static_cast<std::int64_t>(data.size());
  const std::uint64_t key = pattern_key(write, step);
  std::array<float, kPatternPeriod> pattern;
  for (std::int64_t i = 0; i < std::min(kPatternPeriod, count); ++i) {
    pattern[static_cast<std::size_t>(i)] = static_cast<float>(pattern_value(key, i, kBits));
  }
  const auto factor = static_cast<float>(write.factor);
  for (std::int64_t begin = 0; begin < count; begin += kPatternPeriod) {
    const auto add = static_cast<float>(salt_value(write.tensor, begin / kPatternPeriod, kBits));
    Number* const out = data.data() + begin;
    const std::int64_t here = std::min(kPatternPeriod, count - begin);
    for (std::int64_t i = 0; i < here; ++i) {
      out[i] = Number((pattern[static_cast<std::size_t>(i)] + add) * factor);
    }
  }
}

// What the ranks wrote of one tensor at one place of the program, summed up, times a factor. A program may write a
// tensor several times within one micro-step before it is complete: `writes_left` is 0 at the last write, and earlier
// writes leave other values, so that a collective launched too early is found out.
struct Term {
  TensorId tensor;
  std::int32_t writes_left = 0;
  std::int32_t micro_step = 0;
  double factor = 1;
  std::vector<Rank> ranks;
  friend bool operator==(const Term&, const Term&) = default;
};

// Times such a factor a sum stays exact.
inline bool is_power_of_two(double factor) {
  int exponent = 0;
  return std::abs(std::frexp(factor, &exponent)) == 0.5;
}

}  // namespace dovetail::exec::values
