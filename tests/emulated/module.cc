// The module that is linked into this test: exec/cuda on the emulated device.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda_module.h"

namespace dovetail::exec::testing {

FoundModule find_cuda_module() { return {.module = dovetail_cuda_module(), .missing = ""}; }

}  // namespace dovetail::exec::testing
