// How many steps with and without a change have to be run before the difference shows.
//
//   steps_to_see(gain, recorded)      40: of each; nothing where the recorded steps do not tell how far steps stray
//
// Of two means of n steps that stray by s (standard deviation), a difference d is seen with a probability of 0.8, and one that is not there with 0.05,
// from n = 2 (1.96 + 0.84)^2 (s / d)^2 on, if steps stray independently of each other.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace dovetail::diagnose {

// At least 2. Nothing for fewer than three steps, or no gain.
std::optional<std::int64_t> steps_to_see(Duration gain, const std::vector<Duration>& steps);

}  // namespace dovetail::diagnose
