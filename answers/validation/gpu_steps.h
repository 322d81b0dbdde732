// Whole training steps that were measured on one GPU, phase by phase: data/gpu_steps_h100.csv.
//
//   for (const GpuStep& step : gpu_steps(folder)) step.job, step.measured.forward
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/networks/figures.h"
#include "models/networks/job.h"

namespace dovetail::yardsticks {

struct GpuStep {
  std::string name;
  std::int64_t run = 1;                         // of the same script
  std::optional<jobs::Job> job = std::nullopt;  // or
  std::string workload = {};                    // of the zoo
  jobs::Phases measured = {};                   // medians, each of its own: they need not add up
  Duration host{};                              // to issue it
  Bytes peak{};                                 // torch.cuda.max_memory_allocated,
  Bytes
      left_over{};  // of that what another model left in the process: found from these peaks, so such peaks are not judged
  std::string gives =
      {};  // a constant of the prediction that was taken from this step, which is not judged then
};

// Throws InputError with file and line.
std::vector<GpuStep> gpu_steps(const std::string& folder);

}  // namespace dovetail::yardsticks
