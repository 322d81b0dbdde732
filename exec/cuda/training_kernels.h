// Kernels of the training job: the same sums in the same order as exec/cpu/training_ops.cc, in
// double, one thread per result. Meant to be right on small matrices, not fast.
//
// Each launcher enqueues on `stream`, may be captured, and returns the launch's status.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dovetail::exec::cuda {

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
[[nodiscard]] cudaError_t multiply(const Product& product, cudaStream_t stream);
[[nodiscard]] cudaError_t sum_rows(const DeviceMatrix& in, float* out, cudaStream_t stream);

[[nodiscard]] cudaError_t gelu(const float* in, float* out, std::int64_t count,
                               cudaStream_t stream);
// out = slope(in) x gradient.
struct GeluGradient {
  const float* in = nullptr;
  const float* gradient = nullptr;
  float* out = nullptr;
  std::int64_t count = 0;
};
[[nodiscard]] cudaError_t gelu_backward(const GeluGradient& what, cudaStream_t stream);

// out[i] = weights[tokens[i]]; and the sum of dx[i] onto gradient[tokens[i]], in the order of i.
[[nodiscard]] cudaError_t gather_rows(const DeviceMatrix& weights, const std::int32_t* tokens,
                                      const DeviceMatrix& out, cudaStream_t stream);
[[nodiscard]] cudaError_t add_rows(const DeviceMatrix& dx, const std::int32_t* tokens,
                                   const DeviceMatrix& gradient, cudaStream_t stream);

// Mean cross entropy of the rows. *mean is written; *total += mean x share.
struct Loss {
  DeviceMatrix logits;
  const std::int32_t* next = nullptr;  // the right column of each row
  float* mean = nullptr;
  double* total = nullptr;
  double share = 1;
};
[[nodiscard]] cudaError_t loss(const Loss& what, cudaStream_t stream);
// out = (softmax - one at the right column) x *fill / rows.
[[nodiscard]] cudaError_t loss_backward(const Loss& what, const float* fill,
                                        const DeviceMatrix& out, cudaStream_t stream);

[[nodiscard]] cudaError_t set_number(float* out, float value, cudaStream_t stream);
// *out = *total x *fill x factor.
[[nodiscard]] cudaError_t scale_number(const double* total, const float* fill, double factor,
                                       float* out, cudaStream_t stream);
// to += *factor x from.
[[nodiscard]] cudaError_t add_scaled(const float* from, const float* factor, float* to,
                                     std::int64_t count, cudaStream_t stream);

// A fused update: momentum SGD, or Adam where there is a variance.
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
[[nodiscard]] cudaError_t update(const OptimizerStep& step, cudaStream_t stream);

// Loads the code of all of them; before the first collective (device.cuh).
[[nodiscard]] cudaError_t preload_training_kernels();

}  // namespace dovetail::exec::cuda
