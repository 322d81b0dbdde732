// Measured kernels, found by exactly what they compute.
//
//   KernelTable table(cluster.kernels);
//   table.find(DType::F32, GemmWork{64, 256, 784})   // its median, or nothing
//
// No interpolation between shapes: a GEMM one row larger may take a wave more.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/cluster.h"
#include "schedule/program.h"

#include <array>
#include <map>
#include <optional>
#include <span>

namespace dovetail::models {

class KernelTable {
 public:
  // REQUIRES: no two kernels have the same dtype and work.
  explicit KernelTable(std::span<const MeasuredKernel> kernels);

  // Nothing for timed work: it carries its own time.
  [[nodiscard]] std::optional<Duration> find(schedule::DType dtype,
                                             const schedule::Work& work) const;

 private:
  // dtype, which alternative, then its numbers.
  using Key = std::array<double, 6>;
  static Key key(schedule::DType dtype, const schedule::GemmWork& work);
  static Key key(schedule::DType dtype, const schedule::MemoryWork& work);

  std::map<Key, Duration> times_;
};

}  // namespace dovetail::models
