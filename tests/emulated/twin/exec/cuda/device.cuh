// The twin of exec/cuda/device.cuh on the host: kernels that include it run as loops of one thread.
//
// It shadows the real file by the order of include paths (CMakeLists.txt here). A kernel without
// its accesses_KERNEL() in kernel_accesses.h does not compile.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulated/kernel_accesses.h"
#include "tests/emulated/launch.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#define DOVETAIL_LAUNCH(kernel, grid, block, stream, ...)                            \
  ::dovetail::emulated::launch({#kernel, dim3(grid), dim3(block), stream},           \
                               ::dovetail::emulated::accesses_##kernel(__VA_ARGS__), \
                               [=] { kernel(__VA_ARGS__); })
#define DOVETAIL_PRELOAD(kernel) ::dovetail::emulated::preload(#kernel)
#define threadIdx (::dovetail::emulated::t_place.thread)
#define blockIdx (::dovetail::emulated::t_place.block)
#define gridDim (::dovetail::emulated::t_place.grid_size)
#define blockDim (::dovetail::emulated::t_place.block_size)

inline void __syncthreads() {}
inline void atomicAdd(unsigned long long* to, unsigned long long value) { *to += value; }
inline void atomicAdd(double* to, double value) { *to += value; }
inline void atomicMin(unsigned long long* to, unsigned long long value) {
  if (value < *to) *to = value;
}
inline float __uint_as_float(unsigned bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

namespace dovetail::exec::cuda {

inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
inline std::int64_t thread_count() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

template <int kThreads>
double block_sum(double value) {
  return ::dovetail::emulated::add_to_block(value);
}

inline std::int64_t device_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
inline std::int64_t device_cycles() { return device_ns(); }

}  // namespace dovetail::exec::cuda
