// Where a step that nobody measured may lie: by how far public steps lay from their predictions.
//
//   const PublicError* error = public_error(cluster, program);     // null: nothing is known of such steps
//   StepRange range = step_range(*error, step);                    // range.p5, range.p50, range.p95
//   Difference less = difference(*error, step, than);              // of two steps on one machine, in per cent
//
// Known of steps that are priced by measured products of others on an uncalibrated machine of GPUs, as all those of jobs are. Quantiles of measured /
// predicted are those that `validate public --with-steps` prints of all yardsticks, each with the same weight; the same
// command counts how many rows of each yardstick lie in what the others say; each kind of step has its own (models/networks/step_kind.h), and steps
// that their host bounds, by the same prediction, are in none: what that may take is added (host_phases.h). Two steps of one model on one machine share most of their error: nine of
// ten public ratios of two steps lay within a factor of `apart` from the predicted ratio.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>

#include "base/units.h"
#include "models/clusters/cluster.h"
#include "models/costs/scaled_costs.h"
#include "schedule/program.h"

namespace dovetail::predict {

// Quantiles of measured / predicted.
struct PublicError {
  double p5 = 1, p50 = 1, p95 = 1;
  double apart = 1;  // at least 1
};

// Lives as long as the program.
const PublicError* public_error(const models::Cluster& cluster, const schedule::Program& program);

struct StepRange {
  Duration p5{}, p50{}, p95{};
  friend bool operator==(const StepRange&, const StepRange&) = default;
};
StepRange step_range(const PublicError& error, Duration step);
// Nothing where nothing is known.
std::optional<StepRange> step_range(const std::optional<models::Cluster>& cluster,
                                    const schedule::Program& program, Duration step);

// What the parts of an uncalibrated machine's costs may be off by. Compute: as steps on one node. Links and latencies: of 1,334 public
// times of collectives by several versions of NCCL (ai-dynamo/aiconfigurator at 095f58a51) the longest is 1.17 times the
// shortest at the 90th percentile and 1.26 at the 95th. Host: assumed.
const std::array<models::CostRange, 4>& uncalibrated_ranges();

// By how much `step` is longer than `than`, in per cent of it. low <= middle <= high.
struct Difference {
  double low = 0, middle = 0, high = 0;
};
Difference difference(const PublicError& error, Duration step, Duration than);

}  // namespace dovetail::predict
