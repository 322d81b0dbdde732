// Probes of the rules that the executor relies on, for CUDA, NCCL and cuBLAS as they are linked: the
// emulated ones in the tests, the real ones on a machine with a GPU. Where the answers differ, the
// emulation is wrong.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace dovetail::conformance {

enum class Verdict { Pass, Differs };
struct Answer {
  std::string probe;  // the rule, as a sentence
  Verdict verdict = Verdict::Pass;
  std::string detail;  // what was found instead
};

// All probes, in order, on device 0. No probe waits without end; each cleans up behind itself.
std::vector<Answer> run_probes();

}  // namespace dovetail::conformance
