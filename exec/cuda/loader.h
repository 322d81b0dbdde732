// Finds and opens the CUDA module.
//
//   const Module& module = load_module(module_place(path));   DeviceError: no module, not loadable
//   require_device(module.facts());                           DeviceError: no driver, no device
//
// Three things can be missing, each with a sentence of its own:
//   the module    "the cuda backend is not part of this build: no CUDA compiler (nvcc) was found"
//   a library     "the cuda module cannot be loaded: libnccl.so.2: cannot open shared object file"
//   the driver    "the cuda backend finds no usable GPU: no NVIDIA driver is loaded (code 35)"
// The file is libdovetail_cuda.so beside the executable, or the one that DOVETAIL_CUDA_MODULE
// names.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/module.h"

#include <string>

namespace dovetail::exec::cuda {

// Where the module is looked for. `built` is false in a build without it; `reason` says why.
struct ModulePlace {
  bool built = false;
  std::string reason;
  std::string path;
};
// From this build, the executable's folder and, if not empty, an explicit path.
ModulePlace module_place(const std::string& explicit_path);

// Opens it once; it stays loaded. Throws DeviceError.
const Module& load_module(const ModulePlace& place);

// Throws DeviceError unless at least one GPU can be used.
void require_device(const Facts& facts);

}  // namespace dovetail::exec::cuda
