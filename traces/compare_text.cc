// How figures of comparisons are shown, and the line that says what one side of one is.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/compare_text.h"

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

Cell time_cell(Duration time, Milliseconds ms) { return Cell(time).shown_as(ms(time)); }

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
