// Kernels of the executor and their launchers: known values in, comparison, copies in and out of
// buckets, scaling, streaming passes. Loops stride over the grid and count in 64 bits, so that any
// size of array works with any size of grid.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels.h"

#include "exec/cuda/device.cuh"
#include "exec/cuda/elements.cuh"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace dovetail::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;
constexpr int kMostRows = 65535;  // of a grid

int blocks_for(std::int64_t items) {
  const std::int64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<int>(blocks < 1 ? 1 : blocks > kMostBlocks ? kMostBlocks : blocks);
}

__global__ void fill_known_kernel(Array data, KnownWrite write, const std::int32_t* step) {
  const std::int32_t bits = pattern_bits(data.element);
  const std::uint64_t key = pattern_key(write, *step);
  for (std::int64_t i = thread_index(); i < data.count; i += thread_count()) {
    const std::int32_t value =
        pattern_value(key, i, bits) + salt_value(write.tensor, i / kPatternPeriod, bits);
    store(data, i, value * write.factor);
  }
}

__global__ void set_step_kernel(std::int32_t* step, std::int32_t value) { *step = value; }

__global__ void fill_random_kernel(Array data, std::uint64_t seed) {
  for (std::int64_t i = thread_index(); i < data.count; i += thread_count()) {
    const std::uint64_t hash = splitmix64(seed + static_cast<std::uint64_t>(i));
    store(data, i, static_cast<double>(hash >> 40) * 0x1p-24 - 0.5);
  }
}

__device__ double expected_at(const ComparisonTables& tables, const Comparison& what,
                              std::int64_t index) {
  double value = tables.sums[what.sum + index % kPatternPeriod];
  for (std::int32_t i = 0; i < what.salt_count; ++i) {
    const Salted salted = tables.salts[what.salts + i];
    value += salt_value(salted.tensor, index / kPatternPeriod, salted.bits) * salted.factor;
  }
  return value;
}

// Row y of the grid takes comparison y.
__global__ void compare_known_kernel(ComparisonTables tables) {
  for (std::int32_t number = blockIdx.y; number < tables.count; number += gridDim.y) {
    const Comparison what = tables.comparisons[number];
    Found& found = tables.found[number];
    double squares = 0;
    for (std::int64_t i = thread_index(); i < what.count; i += thread_count()) {
      const double expected = expected_at(tables, what, what.first + i);
      if (what.data == nullptr) {
        squares += expected * expected;
        continue;
      }
      const double difference = load(what.data, what.element, i) - expected;
      if (difference <= what.tolerance && -difference <= what.tolerance) continue;  // NaN is wrong
      atomicAdd(&found.wrong, 1ULL);
      atomicMin(&found.first, static_cast<unsigned long long>(i));
    }
    if (what.data == nullptr) {
      const double sum = block_sum<kThreads>(squares);
      if (threadIdx.x == 0) atomicAdd(&found.squares, sum);
      __syncthreads();
    }
  }
}

// Row y of the grid takes range y; 16 bytes per access where both ends allow it.
__global__ void move_ranges_kernel(Moves moves) {
  for (std::int32_t number = blockIdx.y; number < moves.count; number += gridDim.y) {
    const Move move = moves.list[number];
    const auto ends =
        reinterpret_cast<std::uintptr_t>(move.from) | reinterpret_cast<std::uintptr_t>(move.to);
    std::int64_t done = 0;
    if (ends % 16 == 0) {
      const auto* from = static_cast<const int4*>(move.from);
      auto* to = static_cast<int4*>(move.to);
      const std::int64_t count = move.bytes / 16;
      for (std::int64_t i = thread_index(); i < count; i += thread_count()) to[i] = from[i];
      done = count * 16;
    } else if (ends % 4 == 0) {
      const auto* from = static_cast<const std::int32_t*>(move.from);
      auto* to = static_cast<std::int32_t*>(move.to);
      const std::int64_t count = move.bytes / 4;
      for (std::int64_t i = thread_index(); i < count; i += thread_count()) to[i] = from[i];
      done = count * 4;
    }
    const auto* from = static_cast<const std::int16_t*>(move.from);
    auto* to = static_cast<std::int16_t*>(move.to);
    for (std::int64_t i = done / 2 + thread_index(); i < move.bytes / 2; i += thread_count()) {
      to[i] = from[i];
    }
  }
}

// Row y of the grid takes array y.
__global__ void spoil_kernel(Freed freed) {
  for (std::int32_t number = blockIdx.y; number < freed.count; number += gridDim.y) {
    const Array data = freed.list[number];
    for (std::int64_t i = thread_index() * freed.stride; i < data.count;
         i += thread_count() * freed.stride) {
      store(data, i, NAN);
    }
  }
}

__global__ void copy_scaled_kernel(Array from, Array to, double factor) {
  for (std::int64_t i = thread_index(); i < to.count; i += thread_count()) {
    store(to, i, load(from.data, from.element, i) * factor);
  }
}

__global__ void accumulate_kernel(Array from, Array to, double factor, Onto onto) {
  for (std::int64_t i = thread_index(); i < to.count; i += thread_count()) {
    const double old = onto == Onto::Old ? load(to.data, to.element, i) : 0;
    store(to, i, (old + load(from.data, from.element, i)) * factor);
  }
}

__global__ void squares_kernel(Array data, double factor, double* partial) {
  double sum = 0;
  for (std::int64_t i = thread_index(); i < data.count; i += thread_count()) {
    const double value = load(data.data, data.element, i) * factor;
    sum += value * value;
  }
  const double all = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

__global__ void add_partials_kernel(const double* partial, std::int32_t count, double* total) {
  const bool has_one = static_cast<std::int32_t>(threadIdx.x) < count;
  const double sum = block_sum<kThreads>(has_one ? partial[threadIdx.x] : 0);
  if (threadIdx.x == 0) *total += sum;
}

__global__ void store_number_kernel(const double* total, Array out) { store(out, 0, *total); }

__global__ void stream_pass_kernel(const float* x, float* y, std::int64_t count) {
  const auto* x4 = reinterpret_cast<const float4*>(x);
  auto* y4 = reinterpret_cast<float4*>(y);
  for (std::int64_t i = thread_index(); i < count / 4; i += thread_count()) {
    const float4 a = x4[i];
    float4 b = y4[i];
    b.x = 0.5F * (a.x + b.x);
    b.y = 0.5F * (a.y + b.y);
    b.z = 0.5F * (a.z + b.z);
    b.w = 0.5F * (a.w + b.w);
    y4[i] = b;
  }
  const std::int64_t rest = count / 4 * 4 + thread_index();
  if (rest < count) y[rest] = 0.5F * (x[rest] + y[rest]);
}

}  // namespace

cudaError_t fill_known(const Array& data, const KnownWrite& write, const std::int32_t* step,
                       cudaStream_t stream) {
  if (data.count == 0) return cudaSuccess;
  return DOVETAIL_LAUNCH(fill_known_kernel, blocks_for(data.count), kThreads, stream, data, write,
                         step);
}

cudaError_t set_step(std::int32_t* step, std::int32_t value, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(set_step_kernel, 1, 1, stream, step, value);
}

cudaError_t fill_random(const Array& data, std::uint64_t seed, cudaStream_t stream) {
  if (data.count == 0) return cudaSuccess;
  return DOVETAIL_LAUNCH(fill_random_kernel, blocks_for(data.count), kThreads, stream, data, seed);
}

cudaError_t compare_known(const ComparisonTables& tables, cudaStream_t stream) {
  if (tables.count == 0) return cudaSuccess;
  constexpr int kMostPerComparison = 64;
  const int columns = std::min(kMostPerComparison, blocks_for(tables.largest));
  const int rows = tables.count < kMostRows ? tables.count : kMostRows;
  const dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>(rows));
  return DOVETAIL_LAUNCH(compare_known_kernel, grid, kThreads, stream, tables);
}

cudaError_t move_ranges(const Moves& moves, cudaStream_t stream) {
  if (moves.count == 0) return cudaSuccess;
  constexpr int kBytesPerThread = 64;
  const int columns = blocks_for(moves.largest / kBytesPerThread);
  const int rows = moves.count < kMostRows ? moves.count : kMostRows;
  const dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>(rows));
  return DOVETAIL_LAUNCH(move_ranges_kernel, grid, kThreads, stream, moves);
}

cudaError_t spoil(const Freed& freed, cudaStream_t stream) {
  if (freed.count == 0) return cudaSuccess;
  const int columns = blocks_for((freed.largest + freed.stride - 1) / freed.stride);
  const int rows = freed.count < kMostRows ? freed.count : kMostRows;
  const dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>(rows));
  return DOVETAIL_LAUNCH(spoil_kernel, grid, kThreads, stream, freed);
}

cudaError_t copy_scaled(const Array& from, const Array& to, double factor, cudaStream_t stream) {
  if (to.count == 0) return cudaSuccess;
  return DOVETAIL_LAUNCH(copy_scaled_kernel, blocks_for(to.count), kThreads, stream, from, to,
                         factor);
}

cudaError_t accumulate(const Array& from, const Array& to, double factor, Onto onto,
                       cudaStream_t stream) {
  if (to.count == 0) return cudaSuccess;
  return DOVETAIL_LAUNCH(accumulate_kernel, blocks_for(to.count), kThreads, stream, from, to,
                         factor, onto);
}

cudaError_t add_squares(const Array& data, double factor, double* partial, double* total,
                        cudaStream_t stream) {
  static_assert(kSquareBlocks == kThreads, "one block adds the partial sums");
  if (data.count == 0) return cudaSuccess;
  const int blocks = std::min(kSquareBlocks, blocks_for(data.count));
  const cudaError_t launched =
      DOVETAIL_LAUNCH(squares_kernel, blocks, kThreads, stream, data, factor, partial);
  if (launched != cudaSuccess) return launched;
  return DOVETAIL_LAUNCH(add_partials_kernel, 1, kThreads, stream, partial, blocks, total);
}

cudaError_t store_number(const double* total, const Array& out, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(store_number_kernel, 1, 1, stream, total, out);
}

cudaError_t stream_pass(const float* x, float* y, std::int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return DOVETAIL_LAUNCH(stream_pass_kernel, blocks_for((count + 3) / 4), kThreads, stream, x, y,
                         count);
}

cudaError_t preload_kernels() {
  for (const cudaError_t loaded :
       {DOVETAIL_PRELOAD(fill_known_kernel), DOVETAIL_PRELOAD(set_step_kernel),
        DOVETAIL_PRELOAD(fill_random_kernel), DOVETAIL_PRELOAD(compare_known_kernel),
        DOVETAIL_PRELOAD(move_ranges_kernel), DOVETAIL_PRELOAD(spoil_kernel),
        DOVETAIL_PRELOAD(copy_scaled_kernel), DOVETAIL_PRELOAD(accumulate_kernel),
        DOVETAIL_PRELOAD(squares_kernel), DOVETAIL_PRELOAD(add_partials_kernel),
        DOVETAIL_PRELOAD(store_number_kernel), DOVETAIL_PRELOAD(stream_pass_kernel)}) {
    if (loaded != cudaSuccess) return loaded;
  }
  return cudaSuccess;
}

}  // namespace dovetail::exec::cuda
