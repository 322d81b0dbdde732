// Eigen products and the streaming pass.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/kernels.h"

#include "base/error.h"
#include "base/random.h"
#include "schedule/visit.h"

// GCC 12 takes the deliberately undefined registers of its own AVX-512 intrinsics for a mistake.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// A rank owns one core; Eigen must not start threads of its own.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include <algorithm>

namespace dovetail::exec::cpu {
namespace {

constexpr std::size_t kStreamFloats = std::size_t{2} << 20;  // per array, two arrays
constexpr std::int64_t kBytesPerElement = 12;                // two reads and one write

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Operands in -0.5..0.5: products of any length stay far from overflow and from denormals.
void fill_bounded(Floats& floats) {
  Random random(1);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    floats.data()[i] = static_cast<float>(random.next() >> 40) * 0x1p-24F - 0.5F;
  }
}

void reserve_gemm(const schedule::GemmWork& work, Workspace& workspace) {
  const auto inputs = static_cast<std::size_t>(work.m * work.k + work.k * work.n);
  if (inputs > workspace.inputs.size()) {
    workspace.inputs.reserve(inputs);
    fill_bounded(workspace.inputs);
  }
  workspace.outputs.reserve(static_cast<std::size_t>(work.m * work.n));
}

void reserve_stream(Workspace& workspace) {
  if (workspace.stream.size() >= 2 * kStreamFloats) return;
  workspace.stream.reserve(2 * kStreamFloats);
  fill_bounded(workspace.stream);
}

}  // namespace

void reserve(const schedule::Op& op, Workspace& workspace) {
  schedule::visit(
      op.work, [&](const schedule::GemmWork& work) { reserve_gemm(work, workspace); },
      [&](const schedule::MemoryWork&) { reserve_stream(workspace); },
      [&](const schedule::TimedWork&) {
        throw InputError(op.name +
                         ": the cpu backend cannot execute a recorded time; make the plan with a "
                         "cluster file that has a unit kernel (dovetail calibrate)");
      });
}

void run_gemm(const schedule::GemmWork& work, Workspace& workspace) {
  const Eigen::Index m = work.m;
  const Eigen::Index n = work.n;
  const Eigen::Index k = work.k;
  const Eigen::Map<const Matrix> a(workspace.inputs.data(), m, k);
  const Eigen::Map<const Matrix> b(workspace.inputs.data() + m * k, k, n);
  Eigen::Map<Matrix> c(workspace.outputs.data(), m, n);
  for (std::int64_t i = 0; i < work.count; ++i) {
    c.noalias() = a * b;
    // The compiler must not drop a product that the next one overwrites.
    asm volatile("" : : "r"(c.data()) : "memory");
  }
}

void run_memory(Bytes bytes, Workspace& workspace) {
  auto left = static_cast<std::size_t>(std::max<std::int64_t>(0, bytes.count()) / kBytesPerElement);
  while (left > 0) {
    const std::size_t count = std::min(left, kStreamFloats - workspace.cursor);
    const float* x = workspace.stream.data() + workspace.cursor;
    float* y = workspace.stream.data() + kStreamFloats + workspace.cursor;
    for (std::size_t i = 0; i < count; ++i) y[i] = 0.5F * (x[i] + y[i]);
    workspace.cursor = (workspace.cursor + count) % kStreamFloats;
    left -= count;
  }
}

}  // namespace dovetail::exec::cpu
