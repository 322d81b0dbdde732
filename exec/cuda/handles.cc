// Allocates and releases device memory, from CUDA or from NCCL, with an error that says what the
// memory was for.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/handles.h"

#include "base/error.h"

#include <nccl.h>

#include <cstdint>
#include <string>

namespace dovetail::exec::cuda {

namespace {

void* allocate_by_nccl(Bytes size, const char* purpose) {
  void* data = nullptr;
  const std::string call = "ncclMemAlloc of " + to_string(size) + " for " + purpose;
  check(ncclMemAlloc(&data, static_cast<std::size_t>(size.count())), call.c_str());
  return data;
}

}  // namespace

void release(void* data, Source source) {
  if (data == nullptr) return;
  if (source == Source::Nccl) {
    static_cast<void>(ncclMemFree(data));
  } else {
    static_cast<void>(cudaFree(data));
  }
}

void* allocate(Bytes size, const char* purpose, Source source) {
  if (size <= Bytes(0)) return nullptr;
  if (source == Source::Nccl) return allocate_by_nccl(size, purpose);
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, static_cast<std::size_t>(size.count()));
  if (result == cudaSuccess) return data;
  static_cast<void>(cudaGetLastError());  // told here
  std::string words = "cudaMalloc of " + to_string(size) + " for " + purpose + ": " +
                      cudaGetErrorString(result) + " (code " +
                      std::to_string(static_cast<int>(result)) + ")";
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
    words += "; " + to_string(Bytes(static_cast<std::int64_t>(free))) + " of " +
             to_string(Bytes(static_cast<std::int64_t>(total))) + " are free";
  }
  throw DeviceError(words);
}

}  // namespace dovetail::exec::cuda
