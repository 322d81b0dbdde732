// Prints what bucket_cap_mb costs resnet50 on eight A100, size by size: the step, what of its communication is exposed, and by
// how much it is above the lower bound.
//
// SPDX-License-Identifier: Apache-2.0
#include <dovetail/dovetail.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

int main() try {
  dovetail::Evaluator evaluator;
  std::printf("%7s  %9s  %10s  %6s\n", "cap MiB", "step ms", "exposed ms", "gap %");
  for (const int cap : {1, 2, 4, 8, 16, 25, 64}) {
    const nlohmann::json line = {{"workload", "resnet50"},
                                 {"cluster", "a100x8"},
                                 {"policy", "ddp:torch=2.14,cap=" + std::to_string(cap) + "MiB"}};
    const nlohmann::json answer = nlohmann::json::parse(evaluator.answer(line.dump()));
    if (answer.contains("error")) throw dovetail::InputError(answer["error"]);
    std::printf("%7d  %9.3f  %10.3f  %6.2f\n", cap, answer["step_us"].get<double>() / 1e3,
                answer["exposed_us"].get<double>() / 1e3, answer["gap_percent"].get<double>());
  }
} catch (const dovetail::InputError& error) {
  std::fprintf(stderr, "thresholds: %s\n", error.what());
  return 2;
}
