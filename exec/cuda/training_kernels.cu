// Kernels of the training job and their launchers. Additions have a fixed order, so that results
// do not depend on the schedule.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/training_kernels.h"

#include "exec/cuda/device.cuh"

#include <initializer_list>

namespace dovetail::exec::cuda {
namespace {

constexpr int kThreads = 128;
// The tanh form of GELU and its derivative.
constexpr double kGelu = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>(items < 1 ? 1 : (items + kThreads - 1) / kThreads);
}

__device__ float& at(const DeviceMatrix& matrix, std::int64_t row, std::int64_t column) {
  return matrix.data[row * matrix.row_stride + column * matrix.column_stride];
}

__global__ void multiply_kernel(Product product) {
  const std::int64_t index = thread_index();
  if (index >= product.out.rows * product.out.columns) return;
  const std::int64_t i = index / product.out.columns;
  const std::int64_t j = index % product.out.columns;
  double sum = product.bias.data == nullptr ? 0 : at(product.bias, 0, j);
  for (std::int64_t k = 0; k < product.a.columns; ++k) {
    sum += static_cast<double>(at(product.a, i, k)) * static_cast<double>(at(product.b, k, j));
  }
  if (product.rest.data != nullptr) sum += at(product.rest, i, j);
  at(product.out, i, j) = static_cast<float>(sum);
}

__global__ void sum_rows_kernel(DeviceMatrix in, float* out) {
  const std::int64_t j = thread_index();
  if (j >= in.columns) return;
  double sum = 0;
  for (std::int64_t i = 0; i < in.rows; ++i) sum += at(in, i, j);
  out[j] = static_cast<float>(sum);
}

__global__ void gelu_kernel(const float* in, float* out, std::int64_t count) {
  const std::int64_t i = thread_index();
  if (i >= count) return;
  const double x = in[i];
  out[i] = static_cast<float>(0.5 * x * (1 + tanh(kGelu * (x + kCubic * x * x * x))));
}

__global__ void gelu_backward_kernel(GeluGradient what) {
  const std::int64_t i = thread_index();
  if (i >= what.count) return;
  const double x = what.in[i];
  const double t = tanh(kGelu * (x + kCubic * x * x * x));
  const double slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGelu * (1 + 3 * kCubic * x * x);
  what.out[i] = static_cast<float>(slope * what.gradient[i]);
}

__global__ void gather_rows_kernel(DeviceMatrix weights, const std::int32_t* tokens,
                                   DeviceMatrix out) {
  const std::int64_t index = thread_index();
  if (index >= out.rows * out.columns) return;
  const std::int64_t i = index / out.columns;
  const std::int64_t j = index % out.columns;
  at(out, i, j) = at(weights, tokens[i], j);
}

// One thread per column, so that rows of the same token are added in order.
__global__ void add_rows_kernel(DeviceMatrix dx, const std::int32_t* tokens,
                                DeviceMatrix gradient) {
  const std::int64_t j = thread_index();
  if (j >= dx.columns) return;
  for (std::int64_t i = 0; i < dx.rows; ++i) at(gradient, tokens[i], j) += at(dx, i, j);
}

__device__ double sum_of_exponentials(const DeviceMatrix& logits, std::int64_t row) {
  double sum = 0;
  for (std::int64_t j = 0; j < logits.columns; ++j) {
    sum += exp(static_cast<double>(at(logits, row, j)));
  }
  return sum;
}

__global__ void loss_kernel(Loss what) {
  double total = 0;
  for (std::int64_t i = 0; i < what.logits.rows; ++i) {
    total += log(sum_of_exponentials(what.logits, i)) -
             static_cast<double>(at(what.logits, i, what.next[i]));
  }
  total /= static_cast<double>(what.logits.rows);
  *what.mean = static_cast<float>(total);
  *what.total += total * what.share;
}

__global__ void loss_backward_kernel(Loss what, const float* fill, DeviceMatrix out) {
  const std::int64_t i = thread_index();
  if (i >= what.logits.rows) return;
  const double each = static_cast<double>(*fill) / static_cast<double>(what.logits.rows);
  const double sum = sum_of_exponentials(what.logits, i);
  for (std::int64_t j = 0; j < what.logits.columns; ++j) {
    const double p = exp(static_cast<double>(at(what.logits, i, j))) / sum;
    at(out, i, j) = static_cast<float>(each * (p - (j == what.next[i] ? 1 : 0)));
  }
}

__global__ void set_number_kernel(float* out, float value) { *out = value; }

__global__ void scale_number_kernel(const double* total, const float* fill, double factor,
                                    float* out) {
  *out = static_cast<float>(*total * static_cast<double>(*fill) * factor);
}

__global__ void add_scaled_kernel(const float* from, const float* factor, float* to,
                                  std::int64_t count) {
  const std::int64_t i = thread_index();
  if (i < count) to[i] += *factor * from[i];
}

__device__ double gradient_factor(const OptimizerStep& step) {
  if (step.squared_norm == nullptr) return step.factor;
  const double norm = sqrt(static_cast<double>(*step.squared_norm));
  return step.factor * fmin(1.0, step.max_norm / (norm + 1e-6));
}

__global__ void update_kernel(OptimizerStep step) {
  const std::int64_t i = thread_index();
  if (i >= step.count) return;
  const double gradient = gradient_factor(step) * static_cast<double>(step.gradient[i]);
  double change = 0;
  if (step.variance == nullptr) {
    const double momentum = step.decay * step.momentum[i] + gradient;
    step.momentum[i] = static_cast<float>(momentum);
    change = step.learning_rate * momentum;
  } else {
    const double mean = step.beta1 * step.momentum[i] + (1 - step.beta1) * gradient;
    const double square = step.beta2 * step.variance[i] + (1 - step.beta2) * gradient * gradient;
    step.momentum[i] = static_cast<float>(mean);
    step.variance[i] = static_cast<float>(square);
    const double bias1 = 1 - pow(step.beta1, static_cast<double>(*step.updates));
    const double bias2 = 1 - pow(step.beta2, static_cast<double>(*step.updates));
    change = step.adam_rate * (mean / bias1) / (sqrt(square / bias2) + step.epsilon);
  }
  step.exact[i] -= change;
  step.to[i] = static_cast<float>(step.exact[i]);
}

}  // namespace

cudaError_t multiply(const Product& product, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(multiply_kernel, blocks_for(product.out.count()), kThreads, stream,
                         product);
}

cudaError_t sum_rows(const DeviceMatrix& in, float* out, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(sum_rows_kernel, blocks_for(in.columns), kThreads, stream, in, out);
}

cudaError_t gelu(const float* in, float* out, std::int64_t count, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(gelu_kernel, blocks_for(count), kThreads, stream, in, out, count);
}

cudaError_t gelu_backward(const GeluGradient& what, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(gelu_backward_kernel, blocks_for(what.count), kThreads, stream, what);
}

cudaError_t gather_rows(const DeviceMatrix& weights, const std::int32_t* tokens,
                        const DeviceMatrix& out, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(gather_rows_kernel, blocks_for(out.count()), kThreads, stream, weights,
                         tokens, out);
}

cudaError_t add_rows(const DeviceMatrix& dx, const std::int32_t* tokens,
                     const DeviceMatrix& gradient, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(add_rows_kernel, blocks_for(dx.columns), kThreads, stream, dx, tokens,
                         gradient);
}

// One thread: the rows are few, and their order is fixed.
cudaError_t loss(const Loss& what, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(loss_kernel, 1, 1, stream, what);
}

cudaError_t loss_backward(const Loss& what, const float* fill, const DeviceMatrix& out,
                          cudaStream_t stream) {
  return DOVETAIL_LAUNCH(loss_backward_kernel, blocks_for(what.logits.rows), kThreads, stream, what,
                         fill, out);
}

cudaError_t set_number(float* out, float value, cudaStream_t stream) {
  return DOVETAIL_LAUNCH(set_number_kernel, 1, 1, stream, out, value);
}

cudaError_t scale_number(const double* total, const float* fill, double factor, float* out,
                         cudaStream_t stream) {
  return DOVETAIL_LAUNCH(scale_number_kernel, 1, 1, stream, total, fill, factor, out);
}

cudaError_t add_scaled(const float* from, const float* factor, float* to, std::int64_t count,
                       cudaStream_t stream) {
  return DOVETAIL_LAUNCH(add_scaled_kernel, blocks_for(count), kThreads, stream, from, factor, to,
                         count);
}

cudaError_t update(const OptimizerStep& step, cudaStream_t stream) {
  if (step.count == 0) return cudaSuccess;
  return DOVETAIL_LAUNCH(update_kernel, blocks_for(step.count), kThreads, stream, step);
}

cudaError_t preload_training_kernels() {
  for (const cudaError_t loaded :
       {DOVETAIL_PRELOAD(multiply_kernel), DOVETAIL_PRELOAD(sum_rows_kernel),
        DOVETAIL_PRELOAD(gelu_kernel), DOVETAIL_PRELOAD(gelu_backward_kernel),
        DOVETAIL_PRELOAD(gather_rows_kernel), DOVETAIL_PRELOAD(add_rows_kernel),
        DOVETAIL_PRELOAD(loss_kernel), DOVETAIL_PRELOAD(loss_backward_kernel),
        DOVETAIL_PRELOAD(set_number_kernel), DOVETAIL_PRELOAD(scale_number_kernel),
        DOVETAIL_PRELOAD(add_scaled_kernel), DOVETAIL_PRELOAD(update_kernel)}) {
    if (loaded != cudaSuccess) return loaded;
  }
  return cudaSuccess;
}

}  // namespace dovetail::exec::cuda
