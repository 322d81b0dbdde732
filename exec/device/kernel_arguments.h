// What a Device's functions take besides arrays: light enough for .cu files, which know nothing else of
// the project. What each function does with them: device.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/array.h"

#include <cstdint>

namespace dovetail::exec {

// Copies of whole ranges, all in one launch: packing and unpacking a bucket. The list lies in
// device memory. Addresses and sizes are multiples of two bytes; ranges do not overlap.
struct Move {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t bytes = 0;
};
struct Moves {
  const Move* list = nullptr;
  std::int32_t count = 0;
  std::int64_t largest = 0;  // bytes of the longest
};

// The list lies in device memory; all elements are of one type.
struct Freed {
  const Array* list = nullptr;
  std::int32_t count = 0;
  std::int64_t largest = 0;  // elements of the longest
  std::int64_t stride = 1;   // elements in 4 KiB
};

enum class Onto { Old, Nothing };

// `partial` has room for kSquareBlocks doubles and is used by one stream at a time.
inline constexpr int kSquareBlocks = 256;
struct SquareSum {
  double* partial = nullptr;
  double* total = nullptr;
};

// A view of floats in device memory; no data: absent.
struct DeviceMatrix {
  float* data = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 1;
  [[nodiscard]] DeviceMatrix transposed() const {
    return {data, columns, rows, column_stride, row_stride};
  }
  [[nodiscard]] std::int64_t count() const { return rows * columns; }
};

// out = bias + a b + rest. bias: one row for all.
struct Product {
  DeviceMatrix a, b, out;
  DeviceMatrix bias = {};
  DeviceMatrix rest = {};
};

// out = slope(in) x gradient.
struct GeluGradient {
  const float* in = nullptr;
  const float* gradient = nullptr;
  float* out = nullptr;
  std::int64_t count = 0;
};

struct Loss {
  DeviceMatrix logits;
  const std::int32_t* next = nullptr;  // the right column of each row
  float* mean = nullptr;
  double* total = nullptr;
  double share = 1;
};

struct OptimizerStep {
  const float* gradient = nullptr;
  double* exact = nullptr;  // the parameter, kept in double from step to step
  float* to = nullptr;      // and rounded
  float* momentum = nullptr;
  float* variance = nullptr;
  std::int64_t count = 0;
  double factor = 1;                    // on gradients
  const float* squared_norm = nullptr;  // of all gradients, if there is a limit
  double max_norm = 0;
  const std::int32_t* updates = nullptr;  // begun so far, this one included
  double learning_rate = 0, decay = 0;    // of SGD
  double adam_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0;
};

}  // namespace dovetail::exec
