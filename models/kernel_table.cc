// Exact lookup of measured kernels.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/kernel_table.h"

#include "base/error.h"

#include <variant>

namespace dovetail::models {

// Sizes stay far below 2^53, so doubles hold them exactly and compare as the integers they are.
KernelTable::Key KernelTable::key(schedule::DType dtype, const schedule::GemmWork& work) {
  return {static_cast<double>(dtype),  0,
          static_cast<double>(work.m), static_cast<double>(work.n),
          static_cast<double>(work.k), static_cast<double>(work.count)};
}

KernelTable::Key KernelTable::key(schedule::DType dtype, const schedule::MemoryWork& work) {
  return {static_cast<double>(dtype), 1, static_cast<double>(work.bytes.count()),
          work.flop.count(),          0, 0};
}

KernelTable::KernelTable(std::span<const MeasuredKernel> kernels) {
  for (const MeasuredKernel& kernel : kernels) {
    const Key place =
        std::visit([&](const auto& work) { return key(kernel.dtype, work); }, kernel.work);
    const bool is_new = times_.emplace(place, kernel.time).second;
    DOVETAIL_CHECK(is_new) << "a kernel was measured twice";
  }
}

std::optional<Duration> KernelTable::find(schedule::DType dtype, const schedule::Work& work) const {
  std::map<Key, Duration>::const_iterator entry = times_.end();
  if (const auto* gemm = std::get_if<schedule::GemmWork>(&work)) {
    entry = times_.find(key(dtype, *gemm));
  } else if (const auto* memory = std::get_if<schedule::MemoryWork>(&work)) {
    entry = times_.find(key(dtype, *memory));
  }
  if (entry == times_.end()) return std::nullopt;
  return entry->second;
}

}  // namespace dovetail::models
