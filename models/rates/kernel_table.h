// Measured kernels, found by exactly what they compute.
//
//   KernelTable table(kernels, unit_kernel);
//   table.find(op)          // the kernel with this op's name, dtype and work; else one without a name
//   table.repetitions(op)   // of the unit kernel: their number times its time
//   table.time(op)          // whichever of these there is
//
// The micro-steps of an op ("fc1.forward@2") are one kernel: names are compared without "@i".
//
// No interpolation between shapes: a GEMM one row larger may take a wave more.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "schedule/program.h"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dovetail::models {

using KernelWork = std::variant<schedule::GemmWork, schedule::MemoryWork, schedule::KernelsWork>;

// One kernel as measured, median and quantiles. With a name it holds for the op of that name only:
// ops of equal work differ in the gradients they write and in what the caches hold.
struct MeasuredKernel {
  schedule::DType dtype = schedule::DType::F32;
  KernelWork work;
  Duration time{};
  std::optional<Duration> p10{}, p90{};
  std::string op = {};  // default "": any op with this work
  friend bool operator==(const MeasuredKernel&, const MeasuredKernel&) = default;
};

// The GEMM that stands in for timed work when a plan is executed on this machine: repeated until
// the time is filled.
struct UnitKernel {
  schedule::DType dtype = schedule::DType::F32;  // default f32
  schedule::GemmWork gemm;
  Duration time{};
  friend bool operator==(const UnitKernel&, const UnitKernel&) = default;
};

class KernelTable {
 public:
  // Whether a table has one place for both, but for names: element type and work, where that is measured as one.
  static bool is_alike(const MeasuredKernel& one, const MeasuredKernel& other);
  KernelTable() = default;
  // REQUIRES: no two kernels have the same name, dtype and work.
  explicit KernelTable(std::vector<MeasuredKernel> kernels, std::optional<UnitKernel> unit = {});

  // Null for timed work, which carries its own time, and for what was not measured.
  [[nodiscard]] const MeasuredKernel* find(const schedule::Op& op) const;
  // Only of kernels with this op's name.
  [[nodiscard]] const MeasuredKernel* find_named(const schedule::Op& op) const;
  // Where the op repeats the unit kernel.
  [[nodiscard]] std::optional<Duration> repetitions(const schedule::Op& op) const;
  // The median of what find gives, else that of the repetitions.
  [[nodiscard]] std::optional<Duration> time(const schedule::Op& op) const;

  [[nodiscard]] const std::vector<MeasuredKernel>& kernels() const { return kernels_; }
  [[nodiscard]] const std::optional<UnitKernel>& unit() const { return unit_; }
  friend bool operator==(const KernelTable& a, const KernelTable& b) {
    return a.kernels_ == b.kernels_ && a.unit_ == b.unit_;
  }

 private:
  // Op name, then dtype, which alternative, and the numbers of its kernels.
  using Key = std::pair<std::string, std::vector<double>>;
  [[nodiscard]] const MeasuredKernel* at(std::string name, const schedule::Op& op) const;

  std::vector<MeasuredKernel> kernels_;
  std::optional<UnitKernel> unit_;
  std::map<Key, std::size_t> places_;  // in kernels_
};

}  // namespace dovetail::models
