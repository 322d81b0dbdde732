// What our kernels ask of the device beyond plain C++: a launch, a thread's place, the sum of a
// block, two clocks. tests/emulated has a twin of this file for the processor.
//
// A kernel that needs more of CUDA (warp intrinsics, shared memory, atomics beyond atomicAdd and
// atomicMin) gets it here first, so that the twin must follow.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Launches kernel(arguments) on `grid` blocks of `block` threads, in stream order; the value is the
// status of the launch.
#define DOVETAIL_LAUNCH(kernel, grid, block, stream, ...) \
  (kernel<<<grid, block, 0, stream>>>(__VA_ARGS__), cudaGetLastError())

// Loads a kernel's code, so that its first launch does not have to: with lazy loading that may wait
// for the device, where a collective may wait for a rank that waits likewise (CUDA C++ Programming
// Guide, Lazy Loading, Concurrent Execution). The value is the status.
#define DOVETAIL_PRELOAD(kernel) \
  ::dovetail::exec::cuda::preload(reinterpret_cast<const void*>(kernel))

namespace dovetail::exec::cuda {

inline cudaError_t preload(const void* kernel) {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, kernel);
}

__device__ inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t thread_count() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

// A tree over a block of kThreads threads, all of which call it; the sum is thread 0's. Before the
// next call: __syncthreads().
template <int kThreads>
__device__ double block_sum(double value) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

// Of the device's clock that counts nanoseconds, and of its SM clock that counts cycles.
__device__ inline std::int64_t device_ns() {
  unsigned long long ns = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return static_cast<std::int64_t>(ns);
}
__device__ inline std::int64_t device_cycles() { return clock64(); }

}  // namespace dovetail::exec::cuda
