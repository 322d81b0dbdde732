// Plain tables and bars for terminals and files.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "base/decimal.h"

namespace dovetail::cli {

// Aligned columns: the first to the left, the others to the right. No trailing spaces.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  // REQUIRES: as many cells as the header has.
  void add(std::vector<std::string> cells);
  void print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// What a prediction assumes, one line each: "  note: ...".
void print_notes(std::ostream& out, const std::vector<std::string>& notes);

struct Bar {
  std::string label;
  double value = 0;
  std::string note;
};

// One line per bar, at most 50 characters long; `origin` is where a bar has length 0.
void print_bars(std::ostream& out, const std::vector<Bar>& bars, double origin);

}  // namespace dovetail::cli
