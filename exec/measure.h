// A measurement: all ranks run the same plans and rank 0 gets one Trace per plan.
//
// This is what `dovetail run` calls on every rank:
//   Measured measured = measure(exchange, lanes, {.warmup = 2, .steps = 10}, provenance);
// Before the first step the ranks prove that they hold the same plans. Afterwards every rank knows
// the summed check, so all of them can end with the same exit code.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/backend.h"
#include "exec/exchange.h"
#include "exec/run.h"
#include "traces/trace.h"

#include <span>
#include <vector>

namespace dovetail::exec {

struct Measured {
  std::vector<traces::Trace> traces;  // one per lane on rank 0, none elsewhere
  std::vector<CheckResult> checks;    // one per lane, summed over ranks, on every rank
};

// Throws what run_interleaved throws, and DeviceError when the ranks' plans differ.
Measured measure(const Exchange& exchange, std::span<const Lane> lanes, const RunOptions& options,
                 const traces::Provenance& provenance);

}  // namespace dovetail::exec
