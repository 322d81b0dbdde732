// cuBLAS is column-major: a row-major C = A B is computed as C^T = B^T A^T.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/gemm.h"

#include "base/error.h"
#include "exec/cuda/kernels.h"

#include <algorithm>
#include <limits>

namespace dovetail::exec::cuda {
namespace {

cudaDataType_t data_type(Element element) {
  switch (element) {
    case Element::F32:
      return CUDA_R_32F;
    case Element::F16:
      return CUDA_R_16F;
    case Element::BF16:
      return CUDA_R_16BF;
    case Element::F64:
      return CUDA_R_64F;
  }
  return CUDA_R_32F;
}

cublasComputeType_t compute_type(Element element, F32Math math) {
  if (element == Element::F64) return CUBLAS_COMPUTE_64F;
  if (element == Element::F32 && math == F32Math::TF32) return CUBLAS_COMPUTE_32F_FAST_TF32;
  return CUBLAS_COMPUTE_32F;
}

DeviceBuffer random_operand(std::int64_t count, Element element, std::uint64_t seed) {
  DeviceBuffer buffer(Bytes(count * size_of(element)), "operands of matrix products");
  check(fill_random({.data = buffer.data(), .count = count, .element = element}, seed, nullptr),
        "kernel fill_random");
  return buffer;
}

}  // namespace

Gemm::Gemm(F32Math math) : math_(math) {
  cublasHandle_t handle = nullptr;
  check(cublasCreate(&handle), "cublasCreate");
  handle_ = CublasHandle(handle);
  workspace_ = DeviceBuffer(kGemmWorkspace, "cuBLAS's workspace");
}

void Gemm::reserve(const schedule::GemmWork& work, Element element) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (std::max({work.m, work.n, work.k, work.count}) > kMost) {
    throw InputError("a matrix product has a side or a count beyond 2^31");
  }
  const std::pair shape(work, element);
  if (std::ranges::find(shapes_, shape) == shapes_.end()) shapes_.push_back(shape);
  GemmRoom& known = operands_[element].room;
  known = wider(known, room_of(work, element));
}

void Gemm::allocate() {
  for (auto& [element, operands] : operands_) {
    operands.a = random_operand(operands.room.a, element, 1);
    operands.b = random_operand(operands.room.b, element, 2);
    operands.c = random_operand(operands.room.c, element, 3);
  }
  // Each shape once: cuBLAS chooses and loads its kernel now, not beside a collective.
  for (const auto& [work, element] : shapes_) run(work, element, nullptr);
  shapes_.clear();
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // our own kernels, no peer
}

void Gemm::run(const schedule::GemmWork& work, Element element, cudaStream_t stream) {
  if (work.m == 0 || work.n == 0 || work.k == 0) return;
  const auto found = operands_.find(element);
  DOVETAIL_CHECK(found != operands_.end()) << "a matrix product was not reserved";
  check(cublasSetStream(handle_.get(), stream), "cublasSetStream");
  // Setting the stream has reset the workspace to cuBLAS's own.
  check(cublasSetWorkspace(handle_.get(), workspace_.data(),
                           static_cast<std::size_t>(workspace_.size().count())),
        "cublasSetWorkspace");
  const GemmBatches batches = batches_of(work, element);
  for (std::int64_t i = 0; i < batches.calls; ++i) {
    run_batch({.work = work, .element = element, .batch = batches.batch}, found->second);
  }
  if (batches.rest > 0) {
    run_batch({.work = work, .element = element, .batch = batches.rest}, found->second);
  }
}

void Gemm::run_batch(const Call& call, const Operands& operands) {
  const auto m = static_cast<int>(call.work.m);
  const auto n = static_cast<int>(call.work.n);
  const auto k = static_cast<int>(call.work.k);
  const cudaDataType_t type = data_type(call.element);
  const cublasComputeType_t compute = compute_type(call.element, math_);
  // Factors have the type of the accumulation.
  const float one = 1;
  const float zero = 0;
  const double one64 = 1;
  const double zero64 = 0;
  const bool is_double = call.element == Element::F64;
  const void* alpha = is_double ? static_cast<const void*>(&one64) : &one;
  const void* beta = is_double ? static_cast<const void*>(&zero64) : &zero;
  if (call.batch == 1) {
    check(cublasGemmEx(handle_.get(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, alpha, operands.b.data(),
                       type, n, operands.a.data(), type, k, beta, operands.c.data(), type, n,
                       compute, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
    return;
  }
  check(cublasGemmStridedBatchedEx(handle_.get(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, alpha,
                                   operands.b.data(), type, n, call.work.k * call.work.n,
                                   operands.a.data(), type, k, call.work.m * call.work.k, beta,
                                   operands.c.data(), type, n, call.work.m * call.work.n,
                                   static_cast<int>(call.batch), compute, CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx");
}

}  // namespace dovetail::exec::cuda
