// Fills tensors with known values, block by block of 256 elements, at the speed of memory.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/values/known_values.h"

#include <algorithm>
#include <array>

namespace dovetail::exec::values {

void fill(const KnownWrite& write, std::int32_t step, std::span<float> data) {
  constexpr std::int32_t kBits = pattern_bits(Element::F32);
  const auto count = static_cast<std::int64_t>(data.size());
  const std::uint64_t key = pattern_key(write, step);
  std::array<float, kPatternPeriod> pattern;
  for (std::int64_t i = 0; i < std::min(kPatternPeriod, count); ++i) {
    pattern[static_cast<std::size_t>(i)] = static_cast<float>(pattern_value(key, i, kBits));
  }
  const auto factor = static_cast<float>(write.factor);
  for (std::int64_t begin = 0; begin < count; begin += kPatternPeriod) {
    const auto add = static_cast<float>(salt_value(write.tensor, begin / kPatternPeriod, kBits));
    float* const out = data.data() + begin;
    const std::int64_t here = std::min(kPatternPeriod, count - begin);
    for (std::int64_t i = 0; i < here; ++i) {
      out[i] = (pattern[static_cast<std::size_t>(i)] + add) * factor;
    }
  }
}

}  // namespace dovetail::exec::values
