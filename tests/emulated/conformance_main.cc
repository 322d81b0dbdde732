// Prints one line per probe; exit code 1 if an answer differs, 3 where there is no GPU.
//
//   pass    "not ready" is not kept as the last error
//   DIFFERS a fork must join: cudaStreamEndCapture: code 0 instead of 904
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/conformance.h"

#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fputs("conformance: no GPU can be used here\n", stderr);
    return 3;
  }
  int different = 0;
  const auto answers = dovetail::conformance::run_probes();
  for (const auto& answer : answers) {
    const bool passes = answer.verdict == dovetail::conformance::Verdict::Pass;
    different += passes ? 0 : 1;
    std::printf("%s %s%s%s\n", passes ? "pass   " : "DIFFERS", answer.probe.c_str(),
                passes ? "" : ": ", answer.detail.c_str());
  }
  std::printf("%zu probes, %d differ from what the executor expects\n", answers.size(), different);
  return different == 0 ? 0 : 1;
}
