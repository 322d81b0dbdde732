// `dovetail import nsys`: one process of an export as a step of all-reduces (timeline/all_reduce_step.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/timeline/all_reduce_step.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

struct NsysStepOptions {
  std::string step = {};  // name of the NVTX range around a step; empty: as iterations.h finds them
  std::optional<std::int64_t> pid{};   // of the process to read; absent: the one with most GPU work
  AllReduceStepOptions all_reduces{};  // sizes and ranks
};

// Throws InputError where no process has that pid (with those there are), and what all_reduce_step and iterations.h refuse.
ImportedStep nsys_step(std::vector<Recording> recordings, const NsysStepOptions& options);

}  // namespace dovetail::imports
