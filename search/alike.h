// Which schedules cannot be told from the best one where costs are only known so far.
//
//   alike(program, costs, ranges, schedules, best)[i]      // whether the i-th may be the faster one
//
// Each part of the costs is taken at the low and the high end of what it may be, one at a time, and both schedules are played: what both share drops out of
// their ratio. The deviations of the ratio are joined as independent ones are, by the root of the sum of their squares. A schedule is alike where
// that reaches down to the best one's step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "models/costs/costs.h"
#include "models/costs/scaled_costs.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::search {

// One for each schedule; false of the best one, and of those that are predicted to be faster (they need more than the best one may). Schedules further than
// `reach` (0.2: 20 %) behind it are not played. REQUIRES: best < schedules.size().
std::vector<bool> alike(const schedule::Program& program, const models::Costs& costs,
                        std::span<const models::CostRange> ranges,
                        const std::vector<const schedule::Schedule*>& schedules, std::size_t best,
                        double reach = 0.2);

}  // namespace dovetail::search
