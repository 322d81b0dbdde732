// Every call into CUDA, cuBLAS and NCCL goes through check(): a failure becomes a DeviceError that
// names the call and carries the library's own words.
//
//   check(cudaStreamCreate(&stream), "cudaStreamCreate");
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

namespace dovetail::exec::cuda {

void check(cudaError_t result, const char* call);
void check(cublasStatus_t result, const char* call);
// ncclInProgress counts as success: non-blocking communicators return it (communicators.h).
void check(ncclResult_t result, const char* call);

}  // namespace dovetail::exec::cuda
