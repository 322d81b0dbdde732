// The library that the tool opens as its CUDA module: nothing but a way back into the executable, which
// holds the executor on the emulated device.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/launchers/entry.h"

extern "C" __attribute__((visibility("default"))) const dovetail::exec::cuda::Module*
dovetail_cuda_module() {
  return dovetail_emulated_module();
}
