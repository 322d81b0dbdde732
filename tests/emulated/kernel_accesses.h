// What each kernel of exec/cuda reads and writes, from its arguments: for the race detector, and for
// the check that everything lies in device memory.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/kernels.h"
#include "exec/cuda/selftest_kernels.h"
#include "exec/cuda/training_kernels.h"
#include "tests/emulated/races.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dovetail::emulated {

using Accesses = std::vector<Access>;

inline std::size_t bytes_of(const exec::Array& array) {
  return static_cast<std::size_t>(array.count * exec::size_of(array.element));
}
inline Access reads(const exec::Array& array) { return reads(array.data, bytes_of(array)); }
inline Access writes(const exec::Array& array) { return writes(array.data, bytes_of(array)); }
inline std::size_t floats(std::int64_t count) { return 4 * static_cast<std::size_t>(count); }
template <class T>
std::size_t bytes_of(std::int64_t count) {
  return sizeof(T) * static_cast<std::size_t>(count);
}

// ---- kernels.cu

inline Accesses accesses_fill_known_kernel(const exec::Array& data, const exec::values::KnownWrite&,
                                           const std::int32_t* step) {
  return {writes(data), reads(step, 4)};
}
inline Accesses accesses_set_step_kernel(std::int32_t* step, std::int32_t) {
  return {writes(step, 4)};
}
inline Accesses accesses_fill_random_kernel(const exec::Array& data, std::uint64_t) {
  return {writes(data)};
}
// The tables were uploaded before: the host may read them here.
inline Accesses accesses_compare_known_kernel(const exec::values::ComparisonTables& tables) {
  using exec::values::Comparison;
  Accesses all = {reads(tables.comparisons, bytes_of<Comparison>(tables.count)),
                  writes(tables.found, bytes_of<exec::values::Found>(tables.count))};
  for (std::int32_t i = 0; i < tables.count; ++i) {
    const Comparison& one = tables.comparisons[i];
    all.push_back(reads(tables.sums + one.sum, bytes_of<double>(exec::values::kPatternPeriod)));
    all.push_back(reads(tables.salts + one.salts, bytes_of<exec::values::Salted>(one.salt_count)));
    all.push_back(
        reads(one.data, static_cast<std::size_t>(one.count * exec::size_of(one.element))));
  }
  return all;
}
inline Accesses accesses_move_ranges_kernel(const exec::Moves& moves) {
  Accesses all = {reads(moves.list, bytes_of<exec::Move>(moves.count))};
  for (std::int32_t i = 0; i < moves.count; ++i) {
    all.push_back(reads(moves.list[i].from, static_cast<std::size_t>(moves.list[i].bytes)));
    all.push_back(writes(moves.list[i].to, static_cast<std::size_t>(moves.list[i].bytes)));
  }
  return all;
}
// All of each: what was freed may be read nowhere.
inline Accesses accesses_spoil_kernel(const exec::Freed& freed) {
  using exec::Array;
  Accesses all = {reads(freed.list, bytes_of<Array>(freed.count))};
  for (std::int32_t i = 0; i < freed.count; ++i) all.push_back(writes(freed.list[i]));
  return all;
}
inline Accesses accesses_copy_scaled_kernel(const exec::Array& from, const exec::Array& to,
                                            double) {
  return {reads(from), writes(to)};
}
inline Accesses accesses_accumulate_kernel(const exec::Array& from, const exec::Array& to, double,
                                           exec::Onto onto) {
  if (onto == exec::Onto::Nothing) return {reads(from), writes(to)};
  return {reads(from), reads(to), writes(to)};
}
inline Accesses accesses_squares_kernel(const exec::Array& data, double, double* partial) {
  return {reads(data), writes(partial, bytes_of<double>(exec::kSquareBlocks))};
}
inline Accesses accesses_add_partials_kernel(const double* partial, std::int32_t count,
                                             double* total) {
  return {reads(partial, bytes_of<double>(count)), reads(total, 8), writes(total, 8)};
}
inline Accesses accesses_store_number_kernel(const double* total, const exec::Array& out) {
  return {reads(total, 8), writes(out.data, static_cast<std::size_t>(exec::size_of(out.element)))};
}
inline Accesses accesses_stream_pass_kernel(const float* x, float* y, std::int64_t count) {
  return {reads(x, floats(count)), reads(y, floats(count)), writes(y, floats(count))};
}

// ---- selftest_kernels.cu

inline Accesses accesses_sample_clock(std::int64_t, exec::cuda::ClockSample* out) {
  return {writes(out, sizeof *out)};
}
template <class T>
Accesses accesses_fill_random(T* data, std::size_t count, std::uint32_t) {
  return {writes(data, count * sizeof(T))};
}

// ---- training_kernels.cu

// All floats from the first to the last one of the view.
inline std::size_t span_of(const exec::DeviceMatrix& matrix) {
  if (matrix.data == nullptr || matrix.count() == 0) return 0;
  return floats((matrix.rows - 1) * matrix.row_stride +
                (matrix.columns - 1) * matrix.column_stride + 1);
}
inline Access reads(const exec::DeviceMatrix& matrix) {
  return reads(matrix.data, span_of(matrix));
}
inline Access writes(const exec::DeviceMatrix& matrix) {
  return writes(matrix.data, span_of(matrix));
}
inline Accesses accesses_multiply_kernel(const exec::Product& product) {
  // Of the bias only one row is read.
  const std::size_t bias = product.bias.data == nullptr ? 0 : floats(product.out.columns);
  return {reads(product.a), reads(product.b), reads(product.bias.data, bias), reads(product.rest),
          writes(product.out)};
}
inline Accesses accesses_sum_rows_kernel(const exec::DeviceMatrix& in, float* out) {
  return {reads(in), writes(out, floats(in.columns))};
}
inline Accesses accesses_gelu_kernel(const float* in, float* out, std::int64_t count) {
  return {reads(in, floats(count)), writes(out, floats(count))};
}
inline Accesses accesses_gelu_backward_kernel(const exec::GeluGradient& what) {
  const std::size_t bytes = floats(what.count);
  return {reads(what.in, bytes), reads(what.gradient, bytes), writes(what.out, bytes)};
}
inline Accesses accesses_gather_rows_kernel(const exec::DeviceMatrix& weights,
                                            const std::int32_t* tokens,
                                            const exec::DeviceMatrix& out) {
  return {reads(weights), reads(tokens, floats(out.rows)), writes(out)};
}
inline Accesses accesses_add_rows_kernel(const exec::DeviceMatrix& dx, const std::int32_t* tokens,
                                         const exec::DeviceMatrix& gradient) {
  return {reads(dx), reads(tokens, floats(dx.rows)), reads(gradient), writes(gradient)};
}
inline Accesses accesses_loss_kernel(const exec::Loss& what) {
  return {reads(what.logits), reads(what.next, floats(what.logits.rows)), writes(what.mean, 4),
          reads(what.total, 8), writes(what.total, 8)};
}
inline Accesses accesses_loss_backward_kernel(const exec::Loss& what, const float* fill,
                                              const exec::DeviceMatrix& out) {
  return {reads(what.logits), reads(what.next, floats(what.logits.rows)), reads(fill, 4),
          writes(out)};
}
inline Accesses accesses_set_number_kernel(float* out, float) { return {writes(out, 4)}; }
inline Accesses accesses_scale_number_kernel(const double* total, const float* fill, double,
                                             float* out) {
  return {reads(total, 8), reads(fill, 4), writes(out, 4)};
}
inline Accesses accesses_add_scaled_kernel(const float* from, const float* factor, float* to,
                                           std::int64_t count) {
  const std::size_t bytes = floats(count);
  return {reads(from, bytes), reads(factor, 4), reads(to, bytes), writes(to, bytes)};
}
inline Accesses accesses_update_kernel(const exec::OptimizerStep& step) {
  const std::size_t bytes = floats(step.count);
  Accesses all = {reads(step.gradient, bytes),   reads(step.exact, 2 * bytes),
                  writes(step.exact, 2 * bytes), writes(step.to, bytes),
                  reads(step.momentum, bytes),   writes(step.momentum, bytes)};
  if (step.variance != nullptr) {
    all.insert(all.end(),
               {reads(step.variance, bytes), writes(step.variance, bytes), reads(step.updates, 4)});
  }
  if (step.squared_norm != nullptr) all.push_back(reads(step.squared_norm, 4));
  return all;
}

}  // namespace dovetail::emulated
