// Lays out tables in aligned columns, and bars of text.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace dovetail::cli {

TextTable::TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void TextTable::add(std::vector<std::string> cells) {
  DOVETAIL_CHECK(cells.size() == rows_.front().size()) << cells.size() << " cells";
  rows_.push_back(std::move(cells));
}

void TextTable::print(std::ostream& out) const {
  std::vector<std::size_t> width(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  for (const auto& row : rows_) {
    std::string line = row[0] + std::string(width[0] - row[0].size(), ' ');
    for (std::size_t i = 1; i < row.size(); ++i) {
      line += "  " + std::string(width[i] - row[i].size(), ' ') + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

void print_notes(std::ostream& out, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) out << "  note: " << note << '\n';
}

void print_bars(std::ostream& out, const std::vector<Bar>& bars, double origin) {
  constexpr double kWidth = 50;
  double longest = 0;
  std::size_t label_width = 0;
  for (const Bar& bar : bars) {
    longest = std::max(longest, bar.value - origin);
    label_width = std::max(label_width, bar.label.size());
  }
  for (const Bar& bar : bars) {
    const double share = longest > 0 ? (bar.value - origin) / longest : 0;
    const auto length = static_cast<std::size_t>(std::lround(std::max(0.0, share) * kWidth));
    out << std::string(label_width - bar.label.size(), ' ') << bar.label << "  "
        << std::string(length, '#') << ' ' << fixed(bar.value, 2) << "  " << bar.note << '\n';
  }
}

}  // namespace dovetail::cli
