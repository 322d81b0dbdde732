// Small dense matrices in borrowed memory, for the training job.
//
// Products sum in double, in index order, and store floats: the same bits every time, and as exact
// as a float can be, so that differences between two Schedules come from the Schedules.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dovetail::exec::cpu {

// Row-major, or a transposed view of row-major memory.
struct Matrix {
  std::span<float> data;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  [[nodiscard]] float& at(std::int64_t row, std::int64_t column) const {
    return data[static_cast<std::size_t>(row * row_stride + column * column_stride)];
  }
  [[nodiscard]] Matrix transposed() const {
    return {data, columns, rows, column_stride, row_stride};
  }
};

// out := a b (+ bias, added to every row) (+ rest, of out's shape). Empty bias and rest: none.
struct Addends {
  Matrix bias = {};
  Matrix rest = {};
};
void multiply(const Matrix& a, const Matrix& b, const Matrix& out, const Addends& added = {});

// out (one row) := the sum of a's rows.
void sum_rows(const Matrix& a, const Matrix& out);

}  // namespace dovetail::exec::cpu
