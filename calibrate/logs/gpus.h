// Vendor peaks of GPUs, for the compute section of a cluster that is made from a log of collectives.
//
//   find_gpu("NVIDIA H100 80GB HBM3")->name == "h100-sxm"; gpu_named("h100-sxm")
//
// Sources: the vendors' data sheets, dense rates (without sparsity); f32 without tensor cores, but on AMD's with its matrix
// units. Memory is the total capacity that PyTorch's out-of-memory messages name in public reports (H100: 79.11 GiB of 80,
// B300: 267.69 of what is sold as 288 GB); AMD's lose nothing. Peaks are not measurements: the cluster file says "uncalibrated".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/clusters/cluster.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::imports {

struct Gpu {
  std::string_view name;    // as --gpu takes it
  double f32_tflop_s = 0;   // 10^12 FLOP per second
  double tf32_tflop_s = 0;  // 0: it has no such units
  double half_tflop_s = 0;  // f16, and bf16 where has_bf16
  double memory_gb_s = 0;   // 10^9 bytes per second
  Bytes memory;             // what the driver gives a process, less than the data sheet's
  bool has_bf16 = true;
  std::string_view f32_means = "f32 is the rate without tensor cores";
};

// By what a driver calls it ("Tesla V100-SXM2-32GB"); absent: unknown.
std::optional<Gpu> find_gpu(std::string_view device);

// By its name in the list; absent: there is none of that name.
std::optional<Gpu> gpu_named(std::string_view name);

// The names of the list, for messages.
std::vector<std::string> gpu_names();

// Whose limits NCCL keeps on it: by its name's generation, those of a Hopper where that is not known.
models::NcclGpu nccl_gpu(std::string_view device);

// The compute section: half of the peak is assumed to be reached, but for products that were measured on this GPU
// (models/rates/gemm_table.h).
models::Roofline roofline_of(const Gpu& gpu);

}  // namespace dovetail::imports
