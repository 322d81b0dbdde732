// What elements of arrays are on a processor: floats, and bf16 as the upper half of one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "exec/array.h"

namespace dovetail::exec::cpu {

// Rounded to the nearest, ties to even; NaN stays one.
class Bf16 {
 public:
  Bf16() = default;
  explicit Bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = value != value;
    half_ = static_cast<std::uint16_t>(
        (is_nan ? bits | 0x400000 : bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(half_) << 16);
  }

 private:
  std::uint16_t half_ = 0;
};

// REQUIRES: f32.
inline std::span<float> floats(const Array& array) {
  return {static_cast<float*>(array.data), static_cast<std::size_t>(array.count)};
}

// Calls `use` with the elements as a span of their type. REQUIRES: f32 or bf16.
template <class Use>
void with_elements(const Array& array, const Use& use) {
  if (array.element != Element::BF16) return use(floats(array));
  use(std::span(static_cast<Bf16*>(array.data), static_cast<std::size_t>(array.count)));
}

}  // namespace dovetail::exec::cpu
