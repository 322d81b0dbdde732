// Profiles as files: what importers of whole steps write, and what `plan` and `explore` take as a
// workload (schema dovetail.profile/1, models/workloads/profile.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/workloads/profile.h"

#include <string>
#include <vector>

namespace dovetail::imports {

// A step as a profiler or a timeline shows it.
struct ImportedStep {
  models::Profile profile;
  std::string what;               // where it comes from and what it could not know, in sentences
  std::vector<std::string> read;  // what was found, one line each
  std::vector<std::string> left_out;  // what was not used and why, one line each
};

// The file of a profile without a baseline, and where it comes from. models::read_profile gives the same
// profile back, up to its times' rounding to 0.1 ns.
// REQUIRES: profile.by_rank.size() == 1; gradients in gradient-ready order, within backward.
std::string profile_to_json(const models::Profile& profile, const std::string& what);

// The same of a step, whose `what` every prediction repeats.
std::string profile_to_json(const ImportedStep& step);

}  // namespace dovetail::imports
