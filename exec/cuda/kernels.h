// Our own kernels and their launchers. Each launcher enqueues on `stream`, may be captured in a
// graph, and returns the launch's status, which goes through check().
//
//   known values   fill_known, compare_known     the proof that a schedule moved the right data
//   data movement  move_ranges, spoil, copy_scaled, accumulate
//   work           stream_pass (memory-bound)
//
// All arrays are in device memory. Kernels that take any element type decide per element, by a
// branch that is the same for all threads: they are bound by memory.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/array.h"
#include "exec/device/kernel_arguments.h"
#include "exec/values/comparison.h"
#include "exec/values/pattern.h"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dovetail::exec::cuda {

using values::Comparison;
using values::ComparisonTables;
using values::Found;
using values::KnownWrite;
using values::kPatternPeriod;
using values::pattern_bits;
using values::pattern_key;
using values::pattern_value;
using values::salt_value;
using values::Salted;

// data[i] = (pattern[i mod 256] + salt) x factor of the step that *step holds when the kernel runs:
// so one graph serves all steps.
[[nodiscard]] cudaError_t fill_known(const Array& data, const KnownWrite& write,
                                     const std::int32_t* step, cudaStream_t stream);
// *step = value, in stream order.
[[nodiscard]] cudaError_t set_step(std::int32_t* step, std::int32_t value, cudaStream_t stream);
// Uniform in -0.5 .. 0.5: products of any length stay far from overflow, and the bits toggle as
// those of real data do (zeros make a GEMM faster than it is).
[[nodiscard]] cudaError_t fill_random(const Array& data, std::uint64_t seed, cudaStream_t stream);

// Fills tables.found.
[[nodiscard]] cudaError_t compare_known(const ComparisonTables& tables, cudaStream_t stream);

// What these do: exec/device/device.h.
[[nodiscard]] cudaError_t move_ranges(const Moves& moves, cudaStream_t stream);

[[nodiscard]] cudaError_t spoil(const Freed& freed, cudaStream_t stream);

// to = from x factor. REQUIRES (all): equal counts.
[[nodiscard]] cudaError_t copy_scaled(const Array& from, const Array& to, double factor,
                                      cudaStream_t stream);
[[nodiscard]] cudaError_t accumulate(const Array& from, const Array& to, double factor, Onto onto,
                                     cudaStream_t stream);

// *total += sum of (data[i] x factor)^2, in an order that does not depend on timing. `partial` has
// room for kSquareBlocks doubles and is used by one stream at a time.
[[nodiscard]] cudaError_t add_squares(const Array& data, double factor, double* partial,
                                      double* total, cudaStream_t stream);
// out[0] = *total, rounded to out's type.
[[nodiscard]] cudaError_t store_number(const double* total, const Array& out, cudaStream_t stream);

// y = (x + y) / 2 over `count` floats: 12 bytes of traffic per element.
[[nodiscard]] cudaError_t stream_pass(const float* x, float* y, std::int64_t count,
                                      cudaStream_t stream);

// Loads the code of all of them; before the first collective (device.cuh).
[[nodiscard]] cudaError_t preload_kernels();

}  // namespace dovetail::exec::cuda
