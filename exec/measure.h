// A measurement: all ranks run the same plans and rank 0 gets one Trace per plan.
//
// This is what `dovetail run` calls on every rank:
//   Measured measured = measure(exchange, lanes, {.warmup = 2, .steps = 10}, provenance);
// Before the first step the ranks prove that they hold the same plans. Afterwards every rank knows
// the summed check, so all of them can end with the same exit code.
// Rounds are of equal kind, and what is known after one decides whether another one follows.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/backend.h"
#include "exec/exchange.h"
#include "exec/run.h"
#include "traces/trace.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace dovetail::exec {

// When a round began and ended on this rank, by its clock. All ranks begin together.
struct RoundTime {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

struct Measured {
  std::vector<traces::Trace> traces;  // one per lane on rank 0, none elsewhere
  std::vector<CheckResult> checks;    // one per lane, summed over ranks, on every rank
  std::vector<RankResult> own;        // of this rank, one per lane
  std::vector<RoundTime> rounds;
  Duration clock_error{};  // of traces: how well the clocks of several hosts are aligned; else 0
};

// Told after each round, on every rank: all step times so far, by lane and step. Rank 0's answer decides
// whether another round follows; it is asked whatever RunOptions::rounds says.
using GoOn = std::function<bool(const std::vector<std::vector<Duration>>&)>;

// Throws what run_interleaved throws, and DeviceError when the ranks' plans differ.
// Without `go_on` there are RunOptions::rounds.
Measured measure(const Exchange& exchange, std::span<const Lane> lanes, const RunOptions& options,
                 const traces::Provenance& provenance, const GoOn& go_on = {});

}  // namespace dovetail::exec
