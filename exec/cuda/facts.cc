// Asks the CUDA runtime, the driver and NCCL for versions and devices. No call here needs a device
// to exist, so that a machine without one gets a sentence instead of a crash.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/facts.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

namespace dovetail::exec::cuda {
namespace {

// CUDA writes 13.0 as 13000.
std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

DeviceFacts device_facts(int index) {
  DeviceFacts facts;
  facts.index = index;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return facts;
  facts.name = properties.name;
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.memory = Bytes(static_cast<std::int64_t>(properties.totalGlobalMem));
  int mode = cudaComputeModeDefault;
  if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index) == cudaSuccess) {
    facts.is_shareable = mode == cudaComputeModeDefault;
  }
  char bus[32] = {};
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, index) == cudaSuccess) facts.pci = bus;
  return facts;
}

std::string objection_to(cudaError_t result, int count) {
  const std::string code = " (code " + std::to_string(static_cast<int>(result)) + ")";
  if (result == cudaErrorInsufficientDriver) {
    return "no NVIDIA driver is loaded, or it is older than CUDA " + cuda_version(CUDART_VERSION) +
           " needs" + code;
  }
  if (result == cudaErrorNoDevice || (result == cudaSuccess && count == 0)) {
    return "the driver reports no device";
  }
  if (result != cudaSuccess) return cudaGetErrorString(result) + code;
  return "";
}

}  // namespace

// NCCL writes 2.28.9 as 22809.
std::string nccl_version(int number) {
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

Facts facts() {
  Facts result;
  result.toolkit = cuda_version(CUDART_VERSION);
  result.architectures = DOVETAIL_CUDA_ARCHITECTURES;
  result.nccl_built = nccl_version(NCCL_VERSION_CODE);
  int number = 0;
  if (ncclGetVersion(&number) == ncclSuccess) result.nccl = nccl_version(number);
  if (cudaDriverGetVersion(&number) == cudaSuccess && number > 0) {
    result.driver = cuda_version(number);
  }
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  result.objection = objection_to(status, count);
  if (!result.objection.empty()) return result;
  for (int index = 0; index < count; ++index) result.devices.push_back(device_facts(index));
  return result;
}

}  // namespace dovetail::exec::cuda
