// A module of another build.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/module.h"

extern "C" const dovetail::exec::cuda::Module* dovetail_cuda_module() {
  static const dovetail::exec::cuda::Module kModule = [] {
    dovetail::exec::cuda::Module module;
    module.version = 4711;
    return module;
  }();
  return &kModule;
}
