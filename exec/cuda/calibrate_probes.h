// The plans that a calibration executes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "schedule/scheduled_program.h"

#include <cstdint>

namespace dovetail::exec::cuda {

// An op that gives the host a head start, then `count` all-reduces of `bytes` each, launched together, on `ranks` ranks.
struct TransferProbe {
  std::int64_t ranks = 1;
  Bytes bytes;
  std::int64_t count = 1;
  std::int32_t max_ctas = 0;
  schedule::BucketMode mode = schedule::BucketMode::View;
};
schedule::ScheduledProgram transfer_plan(const TransferProbe& probe);

// `count` memory-bound ops of `bytes` each, one after the other, and nothing else.
schedule::ScheduledProgram chain_plan(std::int64_t ranks, std::int64_t count, Bytes bytes);

// Appends the op to a role that has nothing else on its compute stream; commands count from 0.
void add_run(schedule::RankProgram& role, OpId op);

// The same transfers, launched before the first op of the workload's forward and backward.
schedule::ScheduledProgram contention_plan(const schedule::Program& workload,
                                           const TransferProbe& probe);

}  // namespace dovetail::exec::cuda
