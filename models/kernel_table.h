// Measured kernels, found by exactly what they compute.
//
//   KernelTable table(cluster);
//   table.find(op)   // the median of the kernel with this op's name, dtype and work; else of one
//                    // without a name; else, for repetitions of the unit kernel, their number
//                    // times its time
//
// The micro-steps of an op ("fc1.forward@2") are one kernel: names are compared without "@i".
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
#include <string>
#include <utility>

namespace dovetail::models {

class KernelTable {
 public:
  // REQUIRES: no two kernels have the same name, dtype and work.
  explicit KernelTable(const Cluster& cluster);

  // Nothing for timed work: it carries its own time.
  [[nodiscard]] std::optional<Duration> find(const schedule::Op& op) const;
  // Only of kernels with this op's name.
  [[nodiscard]] std::optional<Duration> find_named(const schedule::Op& op) const;

 private:
  // Op name, then dtype, which alternative, and its numbers.
  using Key = std::pair<std::string, std::array<double, 6>>;
  static std::array<double, 6> key(schedule::DType dtype, const schedule::GemmWork& work);
  static std::array<double, 6> key(schedule::DType dtype, const schedule::MemoryWork& work);
  [[nodiscard]] std::optional<Duration> at(std::string name, const schedule::Op& op) const;

  std::map<Key, Duration> times_;
  std::optional<UnitKernel> unit_;
};

}  // namespace dovetail::models
