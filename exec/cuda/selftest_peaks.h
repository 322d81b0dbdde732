// What a GPU can do at most, by the name that its driver gives: a measurement above it is wrong.
//
//   physical_peaks("NVIDIA H200")   989.5 TFLOP/s in f16 and bf16, 494.7 in tf32, 66.9 in f32,
//                                   4800 GB/s
// Dense rates without sparsity, from the makers' data sheets; at most one row fits a name. Unknown
// GPUs have none. A plausible fraction is no business of this table: it only catches figures that
// cannot be.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <optional>
#include <string_view>

namespace dovetail::exec::cuda {

struct PhysicalPeaks {
  double half_tflops = 0;  // f16, bf16 with tensor cores
  double tf32_tflops = 0;
  double f32_tflops = 0;
  double memory_gbytes_per_s = 0;
};
std::optional<PhysicalPeaks> physical_peaks(std::string_view device_name);

}  // namespace dovetail::exec::cuda
