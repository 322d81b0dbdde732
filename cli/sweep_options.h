// What the flags of explore ask of a sweep (search/sweep.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/explore.h"
#include "search/sweep.h"

namespace dovetail::cli {

// The thresholds that a text names, rising and distinct; "": the usual range. `points` is of a range.
// Throws InputError.
std::vector<Bytes> parse_thresholds(const std::string& text, std::optional<int> points);

// For the framework that --framework names; else the one whose words all named policies are in; else PyTorch's DDP. What it
// does by itself is among the policies. Throws InputError for a policy that cannot be compared, for options without effect, and for options that
// contradict each other.
search::SweepOptions sweep_options_of(const ExploreOptions& options,
                                      const schedule::Program& program);

}  // namespace dovetail::cli
