// What the texts of comparisons (compare.h) and of differences (difference.h) have in common:
// aligned rows of figures, and the line that introduces each side.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "traces/compare.h"
#include "traces/metrics.h"

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::traces {

// "-6.25 %"; "-" where there is no ratio.
std::string percent(std::optional<double> ratio);

// Rows of cells, printed with the first column to the left and the others to the right.
class AlignedRows {
 public:
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Whose numbers these are, before the numbers. `name` is as wide on all sides.
void print_side(std::ostream& out, std::string_view name, const Side& side, Milliseconds ms);
nlohmann::ordered_json side_json(const Side& side);

}  // namespace dovetail::traces
