// Filling and checking gradients block by block of 256 elements.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/values.h"

#include "base/error.h"
#include "base/random.h"

#include <algorithm>

namespace dovetail::exec::cpu {
namespace {

// The first `count` entries of a pattern. One hash gives four entries of 12 bits.
void make_pattern(const Write& write, std::span<float> pattern) {
  const auto gradient = static_cast<std::uint64_t>(write.gradient.value);
  const auto step = static_cast<std::uint64_t>(write.step);
  const auto rank = static_cast<std::uint64_t>(write.rank.value);
  const auto left = static_cast<std::uint64_t>(write.writes_left);
  const std::uint64_t key =
      splitmix64(splitmix64(splitmix64(gradient) ^ step) ^ (rank << 32) ^ left);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::uint64_t hash = splitmix64(key + i / 4);
    const auto bits = static_cast<std::int32_t>((hash >> (16 * (i % 4))) & 0xFFF);
    pattern[i] = static_cast<float>(bits - 2048);
  }
}

// The same on every rank and in every step: it only marks the place.
float salt(TensorId gradient, std::size_t block) {
  const auto high = static_cast<std::uint64_t>(gradient.value) << 40;
  return static_cast<float>(splitmix64(high ^ block) & 0x7FF);
}

}  // namespace

void fill(const Write& write, std::span<float> data) {
  std::array<float, kPatternPeriod> pattern;
  make_pattern(write, std::span(pattern).first(std::min(kPatternPeriod, data.size())));
  for (std::size_t block = 0; block * kPatternPeriod < data.size(); ++block) {
    const std::size_t begin = block * kPatternPeriod;
    const std::size_t count = std::min(kPatternPeriod, data.size() - begin);
    const float add = salt(write.gradient, block);
    float* out = data.data() + begin;
    for (std::size_t i = 0; i < count; ++i) out[i] = pattern[i] + add;
  }
}

Reduced::Reduced(TensorId gradient, std::int32_t step, std::span<const Rank> ranks,
                 schedule::ReduceOp op)
    : gradient_(gradient),
      ranks_(static_cast<float>(ranks.size())),
      scale_(op == schedule::ReduceOp::Average ? 1.0F / static_cast<float>(ranks.size()) : 1.0F) {
  DOVETAIL_CHECK(!ranks.empty() && static_cast<std::int64_t>(ranks.size()) <= kMostRanks)
      << ranks.size();
  std::array<float, kPatternPeriod> pattern;
  for (const Rank rank : ranks) {
    make_pattern({.gradient = gradient, .step = step, .rank = rank}, pattern);
    for (std::size_t i = 0; i < kPatternPeriod; ++i) sum_[i] += pattern[i];
  }
}

float Reduced::at(std::size_t index) const {
  const float add = ranks_ * salt(gradient_, index / kPatternPeriod);
  return (sum_[index % kPatternPeriod] + add) * scale_;
}

Difference Reduced::compare(std::span<const float> data) const {
  Difference found;
  for (std::size_t block = 0; block * kPatternPeriod < data.size(); ++block) {
    const std::size_t begin = block * kPatternPeriod;
    const std::size_t count = std::min(kPatternPeriod, data.size() - begin);
    const float add = ranks_ * salt(gradient_, block);
    const float* in = data.data() + begin;
    std::int32_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      wrong += static_cast<std::int32_t>(in[i] != (sum_[i] + add) * scale_);
    }
    if (wrong != 0 && found.wrong == 0) {
      std::size_t i = 0;
      while (in[i] == (sum_[i] + add) * scale_) ++i;
      found.first = begin + i;
    }
    found.wrong += wrong;
  }
  return found;
}

}  // namespace dovetail::exec::cpu
