// The module of this build, where there is a GPU.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda_module.h"

#include "base/error.h"
#include "exec/cuda/loader.h"

namespace dovetail::exec::testing {

FoundModule find_cuda_module() {
  const std::string path = DOVETAIL_TEST_CUDA_MODULE;
  if (path.empty()) return {.module = nullptr, .missing = "this build has no CUDA module"};
  try {
    const cuda::Module& module = cuda::load_module({.built = true, .reason = "", .path = path});
    cuda::require_device(module.facts());
    return {.module = &module, .missing = ""};
  } catch (const DeviceError& error) {
    return {.module = nullptr, .missing = error.what()};
  }
}

}  // namespace dovetail::exec::testing
