// Sweeps for machines, schemas "dovetail.explore/1" and, of several, "dovetail.explorations/1".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/explored.h"

namespace dovetail::cli {

std::string sweep_json(const Exploration& one);

// A row for each sweep, and the document of each.
std::string sweeps_json(const std::vector<Exploration>& all);

}  // namespace dovetail::cli
