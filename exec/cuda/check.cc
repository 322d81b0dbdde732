// Turns the status codes of CUDA, cuBLAS and NCCL into DeviceErrors with the name of the call and
// the library's own text.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/check.h"

#include "base/error.h"

#include <string>

namespace dovetail::exec::cuda {
namespace {

[[noreturn]] void fail(const char* call, const char* words, int code) {
  throw DeviceError(std::string(call) + ": " + words + " (code " + std::to_string(code) + ")");
}

}  // namespace

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  // Told here; left as the last error, the next launch would report it as its own.
  static_cast<void>(cudaGetLastError());
  fail(call, cudaGetErrorString(result), static_cast<int>(result));
}

void check(cublasStatus_t result, const char* call) {
  if (result != CUBLAS_STATUS_SUCCESS) {
    fail(call, cublasGetStatusString(result), static_cast<int>(result));
  }
}

void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess && result != ncclInProgress) {
    // The general words, then those of the call that failed inside.
    const char* const last = ncclGetLastError(nullptr);
    const std::string detail = last == nullptr || *last == '\0' ? "" : std::string("; ") + last;
    fail(call, (ncclGetErrorString(result) + detail).c_str(), static_cast<int>(result));
  }
}

}  // namespace dovetail::exec::cuda
