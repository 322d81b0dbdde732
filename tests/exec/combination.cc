// Sums of known values in double, by their definition.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/combination.h"

#include "base/error.h"
#include "base/random.h"

#include <algorithm>
#include <cmath>

namespace dovetail::exec::values {
namespace {

// The first `count` entries of a pattern. One hash gives four entries of 12 bits.
void make_pattern(const Write& write, std::span<float> pattern) {
  const auto tensor = static_cast<std::uint64_t>(write.tensor.value);
  const auto step = static_cast<std::uint64_t>(write.step);
  const auto rank = static_cast<std::uint64_t>(write.rank.value);
  const auto left = static_cast<std::uint64_t>(write.writes_left);
  const auto micro_step = static_cast<std::uint64_t>(write.micro_step);
  const std::uint64_t key =
      splitmix64(splitmix64(splitmix64(tensor) ^ step) ^ (rank << 32) ^ (micro_step << 16) ^ left);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::uint64_t hash = splitmix64(key + i / 4);
    const auto bits = static_cast<std::int32_t>((hash >> (16 * (i % 4))) & 0xFFF);
    pattern[i] = static_cast<float>(bits - 2048);
  }
}

// The same on every rank and in every step: it only marks the place.
float salt(TensorId tensor, std::size_t block) {
  const auto high = static_cast<std::uint64_t>(tensor.value) << 40;
  return static_cast<float>(splitmix64(high ^ block) & 0x7FF);
}

}  // namespace

Combination::Combination(std::span<const Term> terms, std::int32_t step) {
  std::size_t writes = 0;
  double largest = 0;
  bool is_exact = true;
  std::array<float, kPeriod> pattern;
  for (const Term& term : terms) {
    for (const Rank rank : term.ranks) {
      make_pattern({.tensor = term.tensor,
                    .step = step,
                    .rank = rank,
                    .writes_left = term.writes_left,
                    .micro_step = term.micro_step},
                   pattern);
      for (std::size_t i = 0; i < kPeriod; ++i) {
        sum_[i] += static_cast<double>(pattern[i]) * term.factor;
      }
    }
    const auto ranks = static_cast<double>(term.ranks.size());
    salts_.push_back({.tensor = term.tensor, .factor = term.factor * ranks});
    writes += term.ranks.size();
    largest += std::abs(term.factor) * ranks * 4096.0;
    is_exact = is_exact && is_power_of_two(term.factor);
  }
  DOVETAIL_CHECK(static_cast<std::int64_t>(writes) <= kMostRanks) << writes;
  tolerance_ = is_exact ? 0 : 1e-6 * largest;
}

double Combination::salt_of(std::size_t block) const {
  double sum = 0;
  for (const Salted& salted : salts_) {
    sum += static_cast<double>(salt(salted.tensor, block)) * salted.factor;
  }
  return sum;
}

float Combination::at(std::size_t index) const {
  return static_cast<float>(sum_[index % kPeriod] + salt_of(index / kPeriod));
}

Difference Combination::compare(std::span<const float> data, std::size_t first) const {
  Difference found;
  for (std::size_t begin = 0; begin < data.size();) {
    const std::size_t index = first + begin;
    const std::size_t count = std::min(kPeriod - index % kPeriod, data.size() - begin);
    const double add = salt_of(index / kPeriod);
    const double* sum = sum_.data() + index % kPeriod;
    const float* in = data.data() + begin;
    const auto is_right = [&](std::size_t i) {
      return std::abs(static_cast<double>(in[i]) - (sum[i] + add)) <= tolerance_;
    };
    for (std::size_t i = 0; i < count; ++i) {
      if (is_right(i)) continue;
      if (found.wrong++ == 0) found.first = begin + i;
    }
    begin += count;
  }
  return found;
}

double Combination::sum_of_squares(std::size_t first, std::size_t count) const {
  double sum = 0;
  for (std::size_t index = first; index < first + count; ++index) {
    const auto value = static_cast<double>(at(index));
    sum += value * value;
  }
  return sum;
}

}  // namespace dovetail::exec::values
