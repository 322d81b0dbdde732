// What the texts of comparisons (compare.h) and of differences (difference.h) have in common:
// how figures are shown, and the line that introduces each side.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/table.h"
#include "traces/compare.h"
#include "traces/metrics.h"

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dovetail::traces {

// "-6.25 %"; "-" where there is no ratio.
std::string percent(std::optional<double> ratio);

// A time that people read in the milliseconds of their report.
Cell time_cell(Duration time, Milliseconds ms);

// Whose numbers these are, before the numbers. `name` is as wide on all sides.
void print_side(std::ostream& out, std::string_view name, const Side& side, Milliseconds ms);
nlohmann::ordered_json side_json(const Side& side);

}  // namespace dovetail::traces
