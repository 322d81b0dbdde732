// Products as ops of a plan, held against cuBLAS alone: what the executor adds to a kernel.
//
// The same product is timed in turns, so that the clock's drift meets both alike: as ops that the
// backend executes, with its spans, and as bare calls with a handle, a workspace and events of our
// own. Both are on random data, and the time of an empty pair of events is taken off both.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/clock_map.h"
#include "exec/cuda/gemm.h"
#include "exec/cuda/selftest.h"
#include "exec/cuda/selftest_kernels.h"
#include "exec/run.h"

#include <cublas_v2.h>

#include <array>
#include <cstdint>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

namespace dovetail::exec::cuda {
namespace {

using selftest::Outcome;
using selftest::Row;
using selftest::row_of;

constexpr std::int64_t kOpEdge = 4096;  // of the matrices
constexpr std::int32_t kOps = 8;  // one after the other: the host is ahead of all but the first
constexpr int kTurns = 5;
constexpr double kMostRatio = 1.05;

struct OpProduct {
  const char* name;
  schedule::DType dtype;
  RandomKind kind;
  cudaDataType_t type;
  std::int64_t width;
};
constexpr std::array<OpProduct, 2> kOpProducts = {
    {{"f32", schedule::DType::F32, RandomKind::F32, CUDA_R_32F, 4},
     {"bf16", schedule::DType::BF16, RandomKind::BF16, CUDA_R_16BF, 2}}};

schedule::ScheduledProgram products_plan(schedule::DType dtype) {
  schedule::ScheduledProgram plan;
  plan.program.name = "products";
  plan.program.world_size = 1;
  plan.policy = "products";
  plan.streams = {{.id = schedule::kComputeStream, .name = "compute"}};
  schedule::RankProgram role;
  role.ranks = {Rank{0}};
  for (std::int32_t i = 0; i < kOps; ++i) {
    schedule::Op op;
    op.id = OpId{i};
    op.name = "product" + std::to_string(i);
    op.dtype = dtype;
    op.work = schedule::GemmWork{.m = kOpEdge, .n = kOpEdge, .k = kOpEdge};
    plan.program.ops.push_back(op);
    schedule::Command command;
    command.id = CommandId{i};
    command.stream = schedule::kComputeStream;
    command.action = schedule::RunOp{.op = op.id};
    role.commands.push_back(command);
  }
  plan.roles.push_back(role);
  return plan;
}

// cuBLAS with nothing of ours around it.
class Bare {
 public:
  explicit Bare(const OpProduct& product)
      : product_(product), stream_(make_stream(StreamPriority::Normal)) {
    const Bytes size(kOpEdge * kOpEdge * product.width);
    for (DeviceBuffer* buffer : {&a_, &b_, &c_}) *buffer = DeviceBuffer(size);
    const auto count = static_cast<std::size_t>(kOpEdge * kOpEdge);
    check(launch_random(product.kind, a_.data(), count, 1, stream_.get()), "fill_random");
    check(launch_random(product.kind, b_.data(), count, 2, stream_.get()), "fill_random");
    cublasHandle_t handle = nullptr;
    check(cublasCreate(&handle), "cublasCreate");
    handle_ = CublasHandle(handle);
    check(cublasSetStream(handle, stream_.get()), "cublasSetStream");
    for (std::int32_t i = 0; i <= kOps; ++i) marks_.push_back(make_event(EventKind::Timing));
  }

  // Of kOps products in a row, from event to event.
  void time(std::vector<float>& milliseconds) {
    const float one = 1;
    const float zero = 0;
    const int n = static_cast<int>(kOpEdge);
    check(cudaEventRecord(marks_[0].get(), stream_.get()), "cudaEventRecord");
    for (std::int32_t i = 0; i < kOps; ++i) {
      check(cublasGemmEx(handle_.get(), CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, b_.data(),
                         product_.type, n, a_.data(), product_.type, n, &zero, c_.data(),
                         product_.type, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
      check(cudaEventRecord(marks_[static_cast<std::size_t>(i) + 1].get(), stream_.get()),
            "cudaEventRecord");
    }
    await_stream(stream_.get(), kWaitAtMost, "products");
    for (std::size_t i = 1; i < marks_.size(); ++i) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, marks_[i - 1].get(), marks_[i].get()),
            "cudaEventElapsedTime");
      milliseconds.push_back(ms);
    }
  }
  [[nodiscard]] float empty_pair_ms() const {
    return static_cast<float>(best_milliseconds(stream_.get(), [] {}));
  }

 private:
  OpProduct product_;
  Stream stream_;
  DeviceBuffer a_, b_, c_;
  CublasHandle handle_;
  std::vector<Event> marks_;
};

Outcome op_product_outcome(int device, const OpProduct& product) {
  check(cudaSetDevice(device), "cudaSetDevice");
  const schedule::ScheduledProgram plan = products_plan(product.dtype);
  BackendOptions options;
  options.device = device;
  options.exchange = alone();
  CudaBackend backend(plan, options);
  Bare bare(product);
  std::vector<float> ours;
  std::vector<float> theirs;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const Timing& timing : run(plan, Rank{0}, backend, {.warmup = 1, .steps = 1}).timings) {
      ours.push_back(static_cast<float>(timing.end_ns - timing.start_ns) / 1e6F);
    }
    std::vector<float> warm_up;
    bare.time(turn == 0 ? warm_up : theirs);
    if (turn == 0) bare.time(theirs);
  }
  const double our_us = static_cast<double>(median_ns(ours)) / 1e3;
  const double their_us = static_cast<double>(median_ns(theirs)) / 1e3 -
                          1e3 * static_cast<double>(bare.empty_pair_ms());
  if (their_us <= 0) return selftest::fail("cuBLAS took no time");
  const double ratio = our_us / their_us;
  std::ostringstream words;
  words << std::fixed << std::setprecision(1) << our_us << " us as an op of a plan, cuBLAS alone "
        << their_us << ": " << std::setprecision(3) << ratio << " times";
  const bool is_near = ratio < kMostRatio && ratio > 1 / kMostRatio;
  return is_near ? selftest::pass(words.str()) : selftest::fail(words.str());
}

}  // namespace

std::vector<Row> executed_product_rows(int device) {
  std::vector<Row> rows;
  for (const OpProduct& product : kOpProducts) {
    rows.push_back(row_of(
        {"cuda", "gpu " + std::to_string(device) + " product " + product.name + " in a plan"},
        [&] { return op_product_outcome(device, product); }));
  }
  return rows;
}

}  // namespace dovetail::exec::cuda
