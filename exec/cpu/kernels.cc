// The work of ops on a processor: matrix products by Eigen, and streaming passes over memory that
// move the bytes that the op is said to move.
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

constexpr std::int64_t kMostRingElements = std::int64_t{8} << 20;  // 32 MiB in each of two arrays
constexpr std::int64_t kBytesPerElement = 12;                      // two reads and one write
constexpr std::size_t kFewestRingElements = 1024;

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Operands in -0.5..0.5: products of any length stay far from overflow and from denormals.
void fill_bounded(Floats& floats) {
  constexpr std::size_t kBlock = 4096;
  Random random(1);
  float* data = floats.data();
  const std::size_t first = std::min(kBlock, floats.size());
  for (std::size_t i = 0; i < first; ++i) {
    data[i] = static_cast<float>(random.next() >> 40) * 0x1p-24F - 0.5F;
  }
  // Repeating one block fills at the speed of memory.
  for (std::size_t i = first; i < floats.size(); ++i) data[i] = data[i - first];
}

void reserve_gemm(const schedule::GemmWork& work, Workspace& workspace) {
  const auto inputs = static_cast<std::size_t>(work.m * work.k + work.k * work.n);
  if (inputs > workspace.inputs.size()) {
    workspace.inputs.reserve(inputs);
    fill_bounded(workspace.inputs);
  }
  workspace.outputs.reserve(static_cast<std::size_t>(work.m * work.n));
}

std::int64_t float_elements(Bytes bytes) {
  return std::max<std::int64_t>(0, bytes.count()) / kBytesPerElement;
}

void reserve_ring(std::int64_t step_elements, Workspace& workspace) {
  const auto count = static_cast<std::size_t>(std::min(step_elements, kMostRingElements));
  const std::size_t size = 2 * std::max(count, kFewestRingElements);
  if (size <= workspace.stream.size()) return;
  workspace.stream.reserve(size);
  fill_bounded(workspace.stream);
}

}  // namespace

void reserve(std::span<const schedule::Op* const> ops, Workspace& workspace) {
  std::int64_t step_elements = 0;
  for (const schedule::Op* op : ops) {
    DOVETAIL_CHECK(!std::holds_alternative<schedule::TimedWork>(op->work)) << "timed work";
    for (const schedule::Kernel& kernel : schedule::kernels_of(op->work)) {
      schedule::visit(
          kernel, [&](const schedule::GemmWork& work) { reserve_gemm(work, workspace); },
          [&](const schedule::MemoryWork& work) { step_elements += float_elements(work.bytes); });
    }
  }
  reserve_ring(step_elements, workspace);
}

void run_gemm(const schedule::GemmWork& work, Workspace& workspace) {
  const Eigen::Index m = work.m;
  const Eigen::Index n = work.n;
  const Eigen::Index k = work.k;
  const Eigen::Map<const RowMajor> a(workspace.inputs.data(), m, k);
  const Eigen::Map<const RowMajor> b(workspace.inputs.data() + m * k, k, n);
  Eigen::Map<RowMajor> c(workspace.outputs.data(), m, n);
  for (std::int64_t i = 0; i < work.count; ++i) {
    c.noalias() = a * b;
    // The compiler must not drop a product that the next one overwrites.
    asm volatile("" : : "r"(c.data()) : "memory");
  }
}

void run_memory(Bytes bytes, Workspace& workspace) {
  const std::size_t ring = workspace.stream.size() / 2;
  auto left = static_cast<std::size_t>(float_elements(bytes));
  while (left > 0) {
    const std::size_t count = std::min(left, ring - workspace.cursor);
    const float* x = workspace.stream.data() + workspace.cursor;
    float* y = workspace.stream.data() + ring + workspace.cursor;
    for (std::size_t i = 0; i < count; ++i) y[i] = 0.5F * (x[i] + y[i]);
    workspace.cursor = (workspace.cursor + count) % ring;
    left -= count;
  }
}

}  // namespace dovetail::exec::cpu
