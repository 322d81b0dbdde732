// Kinds of steps whose predictions are off alike, as far as public measurements tell.
//
//   StepKind kind = step_kind(job, 8);          // of a job on nodes of eight
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/words.h"
#include "models/networks/job.h"

namespace dovetail::jobs {

using dovetail::to_string;

// The first that holds. Experts: tokens travel to experts on other ranks. WideTensors: tensor parallelism over nodes.
enum class StepKind { Experts, WideTensors, OneNode, SeveralNodes };
constexpr auto words_of(StepKind) {
  return words("experts", "tp over nodes", "one node", "several nodes");
}

StepKind step_kind(const Job& job, std::int64_t node_ranks);

}  // namespace dovetail::jobs
