// Launchers of the self-test's kernels, callable from files that are not compiled by nvcc.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace dovetail::exec::cuda {

// What one thread saw of the two clocks of its device.
struct ClockSample {
  std::int64_t cycles = 0;
  std::int64_t ns = 0;
};

// Spins for that many cycles of the SM clock and writes how long it took to `out` (device memory).
cudaError_t launch_clock_sample(std::int64_t cycles, ClockSample* out, cudaStream_t stream);

// Random numbers in [-1, 1), the same for equal seeds; zeros would make a product look faster.
enum class RandomKind { F32, F16, BF16 };
cudaError_t launch_random(RandomKind kind, void* data, std::size_t count, std::uint32_t seed,
                          cudaStream_t stream);

}  // namespace dovetail::exec::cuda
