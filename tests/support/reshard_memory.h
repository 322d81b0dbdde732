// Carries out a ReshardPlan in the memory of one process, to see whether the data arrives.
//
// Each rank takes its steps until one must wait for another rank; when nobody can go on the plan
// hangs, and the result says so. Independent of exec: messages are lists of elements, collectives
// plain loops. The whole tensor of shape [..] holds 1, 2, 3, ...; a rank's summand of a partial
// axis is chosen so that sums and averages are exact.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/reshard/plan.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::testing {

using Elements = std::vector<double>;

// What each rank of a layout holds.
using Parts = std::map<Rank, Elements>;

// 1, 2, 3, ... in row-major order.
Elements counted(const schedule::reshard::Shape& shape);

// Cuts a whole tensor up. Along a partial axis of n ranks summand i of x is i x for i > 0, the
// first being what is missing to x (sum) or to n x (average).
Parts scatter(const Elements& whole, const schedule::reshard::Shape& shape,
              const schedule::reshard::Layout& layout);

// Puts it together again: from every rank, checking that ranks which hold the same part agree;
// partial axes are reduced. Nothing when two ranks disagree or a part has the wrong size.
std::optional<Elements> gather(const Parts& parts, const schedule::reshard::Shape& shape,
                               const schedule::reshard::Layout& layout);

struct ReshardResult {
  Parts parts;
  std::string problem;  // "" when every rank came to its end
};
ReshardResult execute(const schedule::reshard::ReshardPlan& plan, const Parts& before);

}  // namespace dovetail::testing
