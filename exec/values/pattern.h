// How the known values of tensors (known_values.h) are drawn, for every element type: in a reduced range where the
// type holds fewer exact integers.
//
//   element   pattern          salt       largest   exact sums of up to
//   f32, f64  -2048 .. 2047    0 .. 2047     4094   4096 writes (2^24)
//   f16         -16 .. 15      0 .. 15         30     68 writes (2^11)
//   bf16         -4 .. 3       0 .. 3           6     42 writes (2^8)
// A sum of more writes, or one times a factor that is no power of two, may round: expected.h allows
// the type's rounding then. Both host and device compile this file.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/random.h"
#include "exec/array.h"

#include <cstdint>

namespace dovetail::exec::values {

inline constexpr std::int64_t kPatternPeriod = 256;

// Bits of the pattern; the salt has one less.
constexpr std::int32_t pattern_bits(Element element) {
  return element == Element::F16 ? 5 : element == Element::BF16 ? 3 : 12;
}

// What a write of one tensor is drawn from. Fields as in exec/values/known_values.h.
struct KnownWrite {
  std::int32_t tensor = 0;
  std::int32_t rank = 0;
  std::int32_t writes_left = 0;
  std::int32_t micro_step = 0;
  double factor = 1;
};

constexpr std::uint64_t pattern_key(const KnownWrite& write, std::int32_t step) {
  const auto tensor = static_cast<std::uint64_t>(write.tensor);
  const auto rank = static_cast<std::uint64_t>(write.rank);
  const auto micro_step = static_cast<std::uint64_t>(write.micro_step);
  const auto left = static_cast<std::uint64_t>(write.writes_left);
  return splitmix64(splitmix64(splitmix64(tensor) ^ static_cast<std::uint64_t>(step)) ^
                    (rank << 32) ^ (micro_step << 16) ^ left);
}

// Entry `index` mod 256 of the pattern.
constexpr std::int32_t pattern_value(std::uint64_t key, std::int64_t index, std::int32_t bits) {
  const std::int64_t place = index % kPatternPeriod;
  const std::uint64_t hash = splitmix64(key + static_cast<std::uint64_t>(place / 4));
  const auto mask = (std::uint64_t{1} << bits) - 1;
  const auto drawn = (hash >> (16 * (place % 4))) & mask;
  return static_cast<std::int32_t>(drawn) - (1 << (bits - 1));
}

// The same on every rank and in every step: it only marks the block of 256 elements.
constexpr std::int32_t salt_value(std::int32_t tensor, std::int64_t block, std::int32_t bits) {
  const std::uint64_t high = static_cast<std::uint64_t>(tensor) << 40;
  const auto mask = (std::uint64_t{1} << (bits - 1)) - 1;
  return static_cast<std::int32_t>(splitmix64(high ^ static_cast<std::uint64_t>(block)) & mask);
}

}  // namespace dovetail::exec::values
