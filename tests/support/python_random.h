// The random numbers of CPython's random.Random(seed), to the bit, for seeds of 32 bits.
//
// Inputs of the benchmark were drawn in Python; with this they can be drawn again without it.
// random() is MT19937 with 53 bits a number (Matsumoto and Nishimura 1998, seeded by their
// init_by_array); gauss() is the pair method of CPython 3.11, Lib/random.py: the sine of each pair
// is kept for the next call. round_half_even() is Python's round(x).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <optional>

namespace dovetail::support {

class PythonRandom {
 public:
  explicit PythonRandom(std::uint32_t seed) {
    fill(19'650'218U);
    // init_by_array for a key of one word: 624 mixing steps with the key, 623 without.
    std::size_t i = 1;
    for (std::size_t step = 0; step < kWords; ++step) {
      state_[i] = (state_[i] ^ (scramble(state_[i - 1]) * 1'664'525U)) + seed;
      i = following(i);
    }
    for (std::size_t step = 1; step < kWords; ++step) {
      state_[i] =
          (state_[i] ^ (scramble(state_[i - 1]) * 1'566'083'941U)) - static_cast<std::uint32_t>(i);
      i = following(i);
    }
    state_[0] = 0x8000'0000U;
  }

  // Uniform in [0, 1), a multiple of 2^-53.
  double random() {
    const std::uint64_t high = next() >> 5;
    const std::uint64_t low = next() >> 6;
    return static_cast<double>(high << 26 | low) * 0x1p-53;
  }

  double gauss(double mean, double deviation) {
    double unit = 0;
    if (kept_) {
      unit = *kept_;
      kept_.reset();
    } else {
      const double angle = random() * 2 * std::numbers::pi;
      const double radius = std::sqrt(-2 * std::log(1 - random()));
      unit = std::cos(angle) * radius;
      kept_ = std::sin(angle) * radius;
    }
    // Python rounds the product before the sum; volatile keeps the compiler from fusing them.
    const volatile double offset = unit * deviation;
    return mean + offset;
  }

 private:
  static constexpr std::size_t kWords = 624;
  static constexpr std::size_t kMiddle = 397;

  static std::uint32_t scramble(std::uint32_t word) { return word ^ (word >> 30); }

  // The word after this one when seeding: past the end the last word moves to the front.
  std::size_t following(std::size_t i) {
    if (i + 1 < kWords) return i + 1;
    state_[0] = state_[kWords - 1];
    return 1;
  }

  void fill(std::uint32_t seed) {
    state_[0] = seed;
    for (std::size_t i = 1; i < kWords; ++i) {
      state_[i] = 1'812'433'253U * scramble(state_[i - 1]) + static_cast<std::uint32_t>(i);
    }
  }

  void twist() {
    for (std::size_t i = 0; i < kWords; ++i) {
      const std::uint32_t mixed =
          (state_[i] & 0x8000'0000U) | (state_[(i + 1) % kWords] & 0x7fff'ffffU);
      const std::uint32_t odd = (mixed & 1U) != 0 ? 0x9908'b0dfU : 0U;
      state_[i] = state_[(i + kMiddle) % kWords] ^ (mixed >> 1) ^ odd;
    }
    position_ = 0;
  }

  std::uint32_t next() {
    if (position_ == kWords) twist();
    std::uint32_t word = state_[position_++];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c'5680U;
    word ^= (word << 15) & 0xefc6'0000U;
    return word ^ (word >> 18);
  }

  std::array<std::uint32_t, kWords> state_{};
  std::size_t position_ = kWords;
  std::optional<double> kept_;
};

// REQUIRES: the default rounding mode.
inline std::int64_t round_half_even(double x) { return std::llrint(x); }

}  // namespace dovetail::support
