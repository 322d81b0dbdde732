// Kernels of the training job: the same sums in the same order as exec/cpu/training_kernels.cc, in
// double, one thread per result. Meant to be right on small matrices, not fast.
//
// Each launcher enqueues on `stream`, may be captured, and returns the launch's status.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/device/kernel_arguments.h"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dovetail::exec::cuda {

[[nodiscard]] cudaError_t multiply(const Product& product, cudaStream_t stream);
[[nodiscard]] cudaError_t sum_rows(const DeviceMatrix& in, float* out, cudaStream_t stream);

[[nodiscard]] cudaError_t gelu(const float* in, float* out, std::int64_t count,
                               cudaStream_t stream);
[[nodiscard]] cudaError_t gelu_backward(const GeluGradient& what, cudaStream_t stream);

// out[i] = weights[tokens[i]]; and the sum of dx[i] onto gradient[tokens[i]], in the order of i.
[[nodiscard]] cudaError_t gather_rows(const DeviceMatrix& weights, const std::int32_t* tokens,
                                      const DeviceMatrix& out, cudaStream_t stream);
[[nodiscard]] cudaError_t add_rows(const DeviceMatrix& dx, const std::int32_t* tokens,
                                   const DeviceMatrix& gradient, cudaStream_t stream);

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

[[nodiscard]] cudaError_t update(const OptimizerStep& step, cudaStream_t stream);

// Loads the code of all of them; before the first collective (device.cuh).
[[nodiscard]] cudaError_t preload_training_kernels();

}  // namespace dovetail::exec::cuda
