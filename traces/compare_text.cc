// Aligned rows of text, and the line that says what one side of a comparison is.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/compare_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>

namespace dovetail::traces {

std::string percent(std::optional<double> ratio) {
  if (!ratio) return "-";
  std::array<char, 48> text{};
  // Adding 0.0 turns a rounded -0 into 0.
  const double shown = std::round(*ratio * 1e4) / 1e2 + 0.0;
  const int size = std::snprintf(text.data(), text.size(), "%.2f %%", shown);
  return std::string(text.data(), static_cast<std::size_t>(size));
}

void AlignedRows::print(std::ostream& out) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows_) {
    std::string line = "  " + row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (std::size_t i = 1; i < row.size(); ++i) {
      line += std::string(widths[i] - row[i].size() + 2, ' ') + row[i];
    }
    out << line << '\n';
  }
}

void print_side(std::ostream& out, std::string_view name, const Side& side, Milliseconds ms) {
  const std::string indent(name.size() + 2, ' ');
  const Provenance& from = side.provenance;
  out << name << "  " << to_string(from.origin) << " by " << from.backend << " on " << from.machine
      << ", workload " << from.workload << ", policy " << from.policy << '\n';
  for (const auto& [key, value] : from.notes) out << indent << key << ": " << value << '\n';
  out << indent << "step " << side.report.step << ", the median of " << side.steps << ", rank "
      << side.report.rank << "; step times min " << ms(side.step_times.min) << ", p10 "
      << ms(side.step_times.p10) << ", median " << ms(side.step_times.median) << ", p90 "
      << ms(side.step_times.p90) << " ms\n";
}

}  // namespace dovetail::traces
