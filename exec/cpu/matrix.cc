// Products of small matrices in plain loops, for the training job: the order of additions is
// fixed, so that every rank and every schedule gets the same bits.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/matrix.h"

#include "base/error.h"

namespace dovetail::exec::cpu {

void multiply(const Matrix& a, const Matrix& b, const Matrix& out, const Addends& added) {
  DOVETAIL_CHECK(a.columns == b.rows && a.rows == out.rows && b.columns == out.columns)
      << a.rows << 'x' << a.columns << " times " << b.rows << 'x' << b.columns << " into "
      << out.rows << 'x' << out.columns;
  for (std::int64_t i = 0; i < out.rows; ++i) {
    for (std::int64_t j = 0; j < out.columns; ++j) {
      double sum = added.bias.data.empty() ? 0 : added.bias.at(0, j);
      // Without at(): most of the time of the training tests would go into its checks.
      const float* left = a.data.data() + i * a.row_stride;
      const float* right = b.data.data() + j * b.column_stride;
      for (std::int64_t k = 0; k < a.columns; ++k) {
        sum += static_cast<double>(left[k * a.column_stride]) *
               static_cast<double>(right[k * b.row_stride]);
      }
      if (!added.rest.data.empty()) sum += added.rest.at(i, j);
      out.at(i, j) = static_cast<float>(sum);
    }
  }
}

void sum_rows(const Matrix& a, const Matrix& out) {
  DOVETAIL_CHECK(out.rows == 1 && out.columns == a.columns) << out.rows << 'x' << out.columns;
  for (std::int64_t j = 0; j < a.columns; ++j) {
    double sum = 0;
    for (std::int64_t i = 0; i < a.rows; ++i) sum += a.at(i, j);
    out.at(0, j) = static_cast<float>(sum);
  }
}

}  // namespace dovetail::exec::cpu
