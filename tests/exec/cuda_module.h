// The CUDA module that a test runs on: the real one on a real GPU, or the emulated one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/module.h"

#include <string>

namespace dovetail::exec::testing {

struct FoundModule {
  const cuda::Module* module = nullptr;
  std::string missing;  // why there is none; the test is skipped then
};
// tests/exec/cuda_module.cc opens the built one, tests/emulated/module.cc has its own.
FoundModule find_cuda_module();

}  // namespace dovetail::exec::testing
