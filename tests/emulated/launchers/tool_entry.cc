// In the executable: what its module asks it for, and a mark of how it ended.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/launchers/entry.h"

#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) const dovetail::exec::cuda::Module*
dovetail_emulated_module() {
  // What a process left behind in a library may crash in: told, so that a test can say it does not run.
  static const int kRegistered = std::atexit([] {
    if (std::getenv("DOVETAIL_TELL_EXIT") != nullptr) std::fputs("exit handlers ran\n", stderr);
  });
  return kRegistered == 0 ? dovetail_cuda_module() : nullptr;
}
