// Seeded randomness: the same seed gives the same numbers on every machine and compiler.
//
// splitmix64 (Steele, Lea, Flood, OOPSLA 2014): one multiply-xor chain per number, any 64-bit seed
// is fine.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace dovetail {

// The mixing function alone: a good hash of one 64-bit value.
constexpr std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    const std::uint64_t value = splitmix64(state_);
    state_ += 0x9E3779B97F4A7C15ULL;
    return value;
  }
  // Uniform in [low, high]. REQUIRES: low <= high. The bias is below 2^-32 for ranges under 2^32.
  constexpr std::int64_t between(std::int64_t low, std::int64_t high) {
    // Unsigned, because high - low need not fit a signed number.
    const auto range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
    const std::uint64_t offset = range == 0 ? next() : next() % range;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
  }
  // Uniform in [0, 1).
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace dovetail
