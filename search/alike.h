// Which schedules cannot be told from the best one where costs are only known so far.
//
//   alike(program, costs, kUncalibrated, schedules, best)[i]      // whether the i-th may be the faster one
//
// Each part of the costs is taken at the low and the high end of what it may be, one at a time, and both schedules are played: what both share drops out of
// their ratio. The deviations of the ratio are joined as independent ones are, by the root of the sum of their squares. A schedule is alike where
// that reaches down to the best one's step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "models/costs.h"
#include "models/scaled_costs.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::search {

// By which factors the time of a part may be off.
struct CostRange {
  models::CostPart part = models::CostPart::Link;
  double low = 1, high = 1;
};

// Of a machine of GPUs that nobody calibrated. Compute: what public steps on one node have (predict/step_range.h). Links and latencies: of 1,334 public times
// of collectives by several versions of NCCL (ai-dynamo/aiconfigurator at 095f58a51) the longest is 1.17 times the shortest at the 90th percentile and
// 1.26 at the 95th. Host: assumed.
inline constexpr std::array kUncalibrated = {
    CostRange{.part = models::CostPart::Link, .low = 0.8, .high = 1.2},
    CostRange{.part = models::CostPart::Latency, .low = 0.8, .high = 1.2},
    CostRange{.part = models::CostPart::Compute, .low = 0.69, .high = 1.45},
    CostRange{.part = models::CostPart::Host, .low = 0.5, .high = 2}};

// One for each schedule; false of the best one, and of those that are predicted to be faster (they need more than the best one may). Schedules further than
// `reach` (0.2: 20 %) behind it are not played. REQUIRES: best < schedules.size().
std::vector<bool> alike(const schedule::Program& program, const models::Costs& costs,
                        const std::array<CostRange, 4>& ranges,
                        const std::vector<const schedule::Schedule*>& schedules, std::size_t best,
                        double reach = 0.2);

}  // namespace dovetail::search
