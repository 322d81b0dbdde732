// The kernels of the training job on a processor, in plain loops: the order of additions is fixed, so that every
// rank and every schedule gets the same bits.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/device.h"

#include <algorithm>
#include <cmath>

namespace dovetail::exec::cpu {
namespace {

// The tanh form of GELU and its derivative.
constexpr double kGelu = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

double gelu_slope(double x) {
  const double tanh = std::tanh(kGelu * (x + kCubic * x * x * x));
  return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * kGelu * (1 + 3 * kCubic * x * x);
}

float& at(const DeviceMatrix& matrix, std::int64_t row, std::int64_t column) {
  return matrix.data[row * matrix.row_stride + column * matrix.column_stride];
}

double value(const DeviceMatrix& matrix, std::int64_t row, std::int64_t column) {
  return static_cast<double>(at(matrix, row, column));
}

// Of the softmax of a row.
double sum_of_exponentials(const DeviceMatrix& logits, std::int64_t row) {
  double sum = 0;
  for (std::int64_t j = 0; j < logits.columns; ++j) sum += std::exp(value(logits, row, j));
  return sum;
}

}  // namespace

void CpuDevice::multiply(const Product& product, DeviceStream) {
  const auto& [a, b, out, bias, rest] = product;
  for (std::int64_t i = 0; i < out.rows; ++i) {
    for (std::int64_t j = 0; j < out.columns; ++j) {
      double sum = bias.data == nullptr ? 0 : value(bias, 0, j);
      const float* const left = a.data + i * a.row_stride;
      const float* const right = b.data + j * b.column_stride;
      for (std::int64_t k = 0; k < a.columns; ++k) {
        sum += static_cast<double>(left[k * a.column_stride]) *
               static_cast<double>(right[k * b.row_stride]);
      }
      if (rest.data != nullptr) sum += value(rest, i, j);
      at(out, i, j) = static_cast<float>(sum);
    }
  }
}

void CpuDevice::sum_rows(const DeviceMatrix& in, float* out, DeviceStream) {
  for (std::int64_t j = 0; j < in.columns; ++j) {
    double sum = 0;
    for (std::int64_t i = 0; i < in.rows; ++i) sum += value(in, i, j);
    out[j] = static_cast<float>(sum);
  }
}

void CpuDevice::gelu(const float* in, float* out, std::int64_t count, DeviceStream) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(in[i]);
    out[i] = static_cast<float>(0.5 * x * (1 + std::tanh(kGelu * (x + kCubic * x * x * x))));
  }
}

void CpuDevice::gelu_backward(const GeluGradient& what, DeviceStream) {
  for (std::int64_t i = 0; i < what.count; ++i) {
    what.out[i] = static_cast<float>(gelu_slope(static_cast<double>(what.in[i])) *
                                     static_cast<double>(what.gradient[i]));
  }
}

void CpuDevice::gather_rows(const DeviceMatrix& weights, const std::int32_t* tokens,
                            const DeviceMatrix& out, DeviceStream) {
  for (std::int64_t i = 0; i < out.rows; ++i) {
    for (std::int64_t j = 0; j < out.columns; ++j) at(out, i, j) = at(weights, tokens[i], j);
  }
}

void CpuDevice::add_rows(const DeviceMatrix& dx, const std::int32_t* tokens,
                         const DeviceMatrix& gradient, DeviceStream) {
  for (std::int64_t i = 0; i < dx.rows; ++i) {
    for (std::int64_t j = 0; j < dx.columns; ++j) at(gradient, tokens[i], j) += at(dx, i, j);
  }
}

void CpuDevice::loss(const Loss& what, DeviceStream) {
  double loss = 0;
  for (std::int64_t i = 0; i < what.logits.rows; ++i) {
    loss += std::log(sum_of_exponentials(what.logits, i)) - value(what.logits, i, what.next[i]);
  }
  loss /= static_cast<double>(what.logits.rows);
  *what.mean = static_cast<float>(loss);
  *what.total += loss * what.share;
}

void CpuDevice::loss_backward(const Loss& what, const float* fill, const DeviceMatrix& out,
                              DeviceStream) {
  const double each = static_cast<double>(*fill) / static_cast<double>(what.logits.rows);
  for (std::int64_t i = 0; i < what.logits.rows; ++i) {
    const double sum = sum_of_exponentials(what.logits, i);
    for (std::int64_t j = 0; j < what.logits.columns; ++j) {
      const double p = std::exp(value(what.logits, i, j)) / sum;
      at(out, i, j) = static_cast<float>(each * (p - (j == what.next[i] ? 1 : 0)));
    }
  }
}

void CpuDevice::scale_number(const double* total, const float* fill, double factor, float* out,
                             DeviceStream) {
  *out = static_cast<float>(factor * *total * static_cast<double>(*fill));
}

void CpuDevice::add_scaled(const float* from, const float* factor, float* to, std::int64_t count,
                           DeviceStream) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += *factor * from[i];
}

void CpuDevice::update(const OptimizerStep& step, DeviceStream) {
  double factor = step.factor;
  if (step.squared_norm != nullptr) {
    const double norm = std::sqrt(static_cast<double>(*step.squared_norm));
    factor *= std::min(1.0, step.max_norm / (norm + 1e-6));
  }
  const double updates = *step.updates;
  const double bias1 = 1 - std::pow(step.beta1, updates);
  const double bias2 = 1 - std::pow(step.beta2, updates);
  for (std::int64_t i = 0; i < step.count; ++i) {
    const double gradient = factor * static_cast<double>(step.gradient[i]);
    const auto momentum = static_cast<double>(step.momentum[i]);
    double change = 0;
    if (step.variance == nullptr) {
      const double next = step.decay * momentum + gradient;
      step.momentum[i] = static_cast<float>(next);
      change = step.learning_rate * next;
    } else {
      const double mean = step.beta1 * momentum + (1 - step.beta1) * gradient;
      const double square = step.beta2 * static_cast<double>(step.variance[i]) +
                            (1 - step.beta2) * gradient * gradient;
      step.momentum[i] = static_cast<float>(mean);
      step.variance[i] = static_cast<float>(square);
      change = step.adam_rate * (mean / bias1) / (std::sqrt(square / bias2) + step.epsilon);
    }
    step.exact[i] -= change;
    step.to[i] = static_cast<float>(step.exact[i]);
  }
}

}  // namespace dovetail::exec::cpu
