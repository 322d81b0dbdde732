// The emulated cuBLAS: arguments are checked and operands touched, no product is computed.
//
// Source of rules: cuBLAS 13.0 documentation, cublasSetStream, cublasSetWorkspace, cublasGemmEx.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/emulated.h"
#include "tests/emulated/runtime.h"

#include <cublas_v2.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  std::int32_t device = 0;
};

namespace dovetail::emulated {
namespace {

// Column-major operands without transposition, `count` of them at these strides.
struct Matrix {
  const void* data = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t leading = 0;
  std::int64_t stride = 0;
};
struct Product {
  Matrix a, b, c;
  std::int64_t count = 1;
  cudaDataType type = CUDA_R_32F;
};

std::int64_t element_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_64F:
      return 8;
    default:
      return 4;
  }
}

std::size_t bytes_of(const Matrix& matrix, const Product& product) {
  const std::int64_t one = matrix.leading * (matrix.columns - 1) + matrix.rows;
  return static_cast<std::size_t>((matrix.stride * (product.count - 1) + one) *
                                  element_of(product.type));
}

// cuBLAS chooses a kernel by shape and type.
std::string name_of(const Product& product) {
  std::ostringstream words;
  words << "a product of " << product.c.rows << " x " << product.c.columns << " x "
        << product.a.columns << ", type " << product.type << ", "
        << (product.count == 1 ? "one" : "a batch");
  return words.str();
}

cublasStatus_t multiply(cublasHandle_t handle, const Product& product) {
  for (const Matrix* matrix : {&product.a, &product.b, &product.c}) {
    if (matrix->leading < std::max<std::int64_t>(1, matrix->rows)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  // cublasSetStream resets the workspace to cuBLAS's own, which a capture would have to allocate.
  if (is_capturing(handle->stream) && handle->workspace == nullptr) {
    complain("cuBLAS would allocate its workspace within a capture");
  }
  expect_loaded(name_of(product));
  char* out = static_cast<char*>(const_cast<void*>(product.c.data));
  const std::size_t bytes = bytes_of(product.c, product);
  Work work = {.name = "gemm", .begin = at_once([out, bytes] {
                                 // Some zeros, so that values stay what a sum can hold.
                                 std::memset(out, 0, std::min(bytes, std::size_t{4096}));
                               })};
  work.accesses = {reads(product.a.data, bytes_of(product.a, product)),
                   reads(product.b.data, bytes_of(product.b, product)), writes(out, bytes)};
  if (handle->workspace != nullptr) {
    work.accesses.push_back(writes(handle->workspace, handle->workspace_bytes));
  }
  work.device = Work::Device::Current;
  return enqueue(handle->stream, std::move(work)) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                 : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace
}  // namespace dovetail::emulated

namespace emulated = dovetail::emulated;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;  // a C handle: cublasDestroy deletes it
  (*handle)->device = emulated::current_device();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->workspace = nullptr;
  handle->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t) { return "emulated cuBLAS error"; }

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m,
                            int n, int k, const void*, const void* a, cudaDataType type, int lda,
                            const void* b, cudaDataType, int ldb, const void*, void* c,
                            cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  return emulated::multiply(handle, {.a = {a, m, k, lda, 0},
                                     .b = {b, k, n, ldb, 0},
                                     .c = {c, m, n, ldc, 0},
                                     .count = 1,
                                     .type = type});
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t,
                                          cublasOperation_t, int m, int n, int k, const void*,
                                          const void* a, cudaDataType type, int lda,
                                          long long stride_a, const void* b, cudaDataType, int ldb,
                                          long long stride_b, const void*, void* c, cudaDataType,
                                          int ldc, long long stride_c, int count,
                                          cublasComputeType_t, cublasGemmAlgo_t) {
  return emulated::multiply(handle, {.a = {a, m, k, lda, stride_a},
                                     .b = {b, k, n, ldb, stride_b},
                                     .c = {c, m, n, ldc, stride_c},
                                     .count = count,
                                     .type = type});
}

}  // extern "C"
