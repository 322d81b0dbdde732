// How fast memory-bound kernels of each kind are on a GPU, beside the nominal rate of its memory.
//
//   const auto rates = memory_rates("h100");                  // of models/rates/gemm/memory.csv
//   rates->rate(Access::RmsNorm, DType::BF16, 4096)                   // 2 us + bytes / (0.68 x nominal)
//
// A row is of an access (schedule/program.h), of an element type or of all, and of rows of so many columns where that matters: between
// two of them the share is linear in the logarithm of columns, beyond them that of the edge. A type without a row of its own takes that of
// the nearest width. What is bound by memory takes fixed + bytes / (share x nominal); `bytes` are those that the op states, every operand
// of it counted once, so the share of a kernel that goes over its input more than once (the logarithm of a wide softmax: four times) is low.
//
// Measured on one H100 under CUDA graphs with tensors beyond its L2 cache (memory.csv, README.md beside it). A GPU that nobody measured takes
// the same shares of its own nominal rate. Leaves out that a tensor which was just written may still lie in the cache: passes over less
// than some 20 MB are up to twice as fast.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "schedule/program.h"

namespace dovetail::models {

// One kernel: fixed + bytes / (share x nominal rate).
struct MemoryRate {
  Duration fixed{};
  double share = 1;  // above 0
  friend bool operator==(const MemoryRate&, const MemoryRate&) = default;
};

class MemoryRates {
 public:
  // `dtype` absent: all that have no row of their own. `columns` 0: rows of any width. REQUIRES: share > 0.
  void add(schedule::Access access, std::optional<schedule::DType> dtype, std::int64_t columns,
           MemoryRate rate);
  // As if no row of it had been added.
  void forget(schedule::Access access, std::optional<schedule::DType> dtype) {
    rows_.erase({access, dtype});
  }
  // Absent: nothing is known of such work.
  [[nodiscard]] std::optional<MemoryRate> rate(schedule::Access access, schedule::DType dtype,
                                               std::int64_t columns) const;

 private:
  using Rows = std::map<double, MemoryRate>;  // by log2 of columns
  std::map<std::pair<schedule::Access, std::optional<schedule::DType>>, Rows> rows_;
};

// Whose kernels were measured for this GPU: its own, or those of the one that others take.
std::string_view measured_for(std::string_view device);

// Of this GPU, or of the one that was measured where it was not.
std::shared_ptr<const MemoryRates> memory_rates(std::string_view device);

}  // namespace dovetail::models
