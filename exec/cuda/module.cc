// The module's one symbol.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/module.h"

#include "exec/cuda/facts.h"
#include "exec/cuda/selftest.h"

extern "C" __attribute__((visibility("default"))) const dovetail::exec::cuda::Module*
dovetail_cuda_module() {
  using dovetail::exec::cuda::Module;
  static const Module kModule = {.facts = &dovetail::exec::cuda::facts,
                                 .tools = &dovetail::exec::cuda::tools()};
  return &kModule;
}
