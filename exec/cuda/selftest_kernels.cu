// The two kernels of the self-test: one reads the device's clocks, one fills memory with random
// numbers.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/selftest_kernels.h"

#include "exec/cuda/device.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace dovetail::exec::cuda {
namespace {

__global__ void sample_clock(std::int64_t cycles, ClockSample* out) {
  const std::int64_t start_ns = device_ns();
  const std::int64_t start = device_cycles();
  std::int64_t now = start;
  while (now - start < cycles) now = device_cycles();
  out->cycles = now - start;
  out->ns = device_ns() - start_ns;
}

// A hash of the index: its upper bits become the mantissa of a number in [1, 2).
__device__ float random_at(std::uint32_t index, std::uint32_t seed) {
  std::uint32_t bits = index * 0x9e3779b9U + seed;
  bits = (bits ^ (bits >> 16)) * 0x85ebca6bU;
  bits = (bits ^ (bits >> 13)) * 0xc2b2ae35U;
  bits ^= bits >> 16;
  return __uint_as_float(0x3f800000U | (bits >> 9)) * 2.0F - 3.0F;
}

__device__ void store(float value, float* to) { *to = value; }
__device__ void store(float value, __half* to) { *to = __float2half(value); }
__device__ void store(float value, __nv_bfloat16* to) { *to = __float2bfloat16(value); }

template <class T>
__global__ void fill_random(T* data, std::size_t count, std::uint32_t seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    store(random_at(static_cast<std::uint32_t>(i), seed), data + i);
  }
}

constexpr unsigned kBlocks = 512;
constexpr unsigned kThreads = 256;

}  // namespace

cudaError_t launch_clock_sample(std::int64_t cycles, ClockSample* out, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(sample_clock, 1, 1, stream, cycles, out);
}

cudaError_t launch_random(RandomKind kind, void* data, std::size_t count, std::uint32_t seed,
                          cudaStream_t stream) {
  switch (kind) {
    case RandomKind::F32:
      return DOVETAIL_LAUNCH(fill_random, kBlocks, kThreads, stream, static_cast<float*>(data),
                             count, seed);
    case RandomKind::F16:
      return DOVETAIL_LAUNCH(fill_random, kBlocks, kThreads, stream, static_cast<__half*>(data),
                             count, seed);
    case RandomKind::BF16:
      return DOVETAIL_LAUNCH(fill_random, kBlocks, kThreads, stream,
                             static_cast<__nv_bfloat16*>(data), count, seed);
  }
  return cudaErrorInvalidValue;
}

}  // namespace dovetail::exec::cuda
