// FSDP2's groups of a traced rank as a table: their sizes, and how often a step gathers and reduces each.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>

#include "recordings/timeline/sharding.h"

namespace dovetail::cli {

void print_groups(std::ostream& out, std::int64_t rank, const imports::Sharding& sharding);

}  // namespace dovetail::cli
