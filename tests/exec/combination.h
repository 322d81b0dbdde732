// What sums of known values must be, worked out a second time: by the definition in exec/values/known_values.h, in
// double, sharing no code with the tables that the executor compares with.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/values/known_values.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::exec::values {

inline constexpr std::size_t kPeriod = 256;

struct Write {
  TensorId tensor;
  std::int32_t step = 0;
  Rank rank;
  std::int32_t writes_left = 0;
  std::int32_t micro_step = 0;
  float factor = 1;
};

inline void fill(const Write& write, std::span<float> data) {
  fill({.tensor = write.tensor.value,
        .rank = write.rank.value,
        .writes_left = write.writes_left,
        .micro_step = write.micro_step,
        .factor = static_cast<double>(write.factor)},
       write.step, data);
}

// What a comparison found.
struct Difference {
  std::int64_t wrong = 0;
  std::size_t first = 0;  // index of the first wrong element; meaningless when wrong == 0
};

// The sum of some terms in one step; without terms it is zero.
class Combination {
 public:
  // REQUIRES: at most kMostRanks writes in all.
  Combination(std::span<const Term> terms, std::int32_t step);

  [[nodiscard]] float at(std::size_t index) const;
  // Compares every element; NaN is wrong. data[0] is element `first` of the tensor.
  [[nodiscard]] Difference compare(std::span<const float> data, std::size_t first = 0) const;
  // Of elements first .. first + count - 1.
  [[nodiscard]] double sum_of_squares(std::size_t first, std::size_t count) const;

 private:
  struct Salted {
    TensorId tensor;
    double factor = 1;  // times the number of ranks
  };
  [[nodiscard]] double salt_of(std::size_t block) const;

  std::array<double, kPeriod> sum_{};  // of the patterns
  std::vector<Salted> salts_;
  double tolerance_ = 0;
};

}  // namespace dovetail::exec::values
