// Allocation with words.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/handles.h"

#include "base/error.h"

#include <cstdint>
#include <string>

namespace dovetail::exec::cuda {

void* allocate(Bytes size, const char* purpose) {
  if (size <= Bytes(0)) return nullptr;
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
