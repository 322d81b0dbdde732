// Tables, notes and bars for terminals and files: the one place that knows how wide lines are and what is coloured.
//
// A line is no longer than the terminal (environment.h): a table gives way column by column, a sentence is wrapped, a line
// to paste stays whole.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/decimal.h"
#include "base/units.h"

namespace dovetail::cli {

// How much a report shows: --all rows of its tables, all --notes in full.
struct Detail {
  bool all = false;
  bool notes = false;
};

// The colour of a line, where standard output is a terminal that wants any.
enum class Tone { Plain, Good, Warning };

// Aligned columns, one line a row: texts to the left, numbers to the right, no trailing spaces. Where it is wider than the
// terminal titles are broken over lines; then columns are left out, texts cut, and a line names what is not there.
class TextTable {
 public:
  // The first column is a text.
  explicit TextTable(std::vector<std::string> header);
  // Titles of columns that are texts, too: to the left, and cut where there is no room.
  TextTable& texts(const std::vector<std::string_view>& titles);
  // Titles of columns that can be spared, in this order; a title that no column has is passed over.
  TextTable& spares(const std::vector<std::string_view>& titles);
  // REQUIRES: as many cells as the header has.
  void add(std::vector<std::string> cells, Tone tone = Tone::Plain);
  void print(std::ostream& out) const;

 private:
  struct Column {
    std::string title;
    bool is_text = false;
  };
  struct Row {
    std::vector<std::string> cells;
    Tone tone = Tone::Plain;
  };
  struct Layout;
  [[nodiscard]] Layout layout(std::size_t room) const;
  void widen_titles(Layout& layout, std::size_t room) const;
  [[nodiscard]] std::size_t cell_width(std::size_t column) const;

  std::vector<Column> columns_;
  std::vector<std::size_t> spared_;  // by number, first to go first
  std::vector<Row> rows_;
};

// A sentence, wrapped at the terminal's width; the first line as it is, further ones by `indent` columns.
void print_text(std::ostream& out, const std::string& text, std::size_t indent = 2,
                Tone tone = Tone::Plain);

// A line that stays whole: somebody pastes it.
void print_line(std::ostream& out, const std::string& text, Tone tone = Tone::Plain);

// What a prediction assumes: "  note: ...", one line each and cut there, some of them; all in full where asked for.
void print_notes(std::ostream& out, const std::vector<std::string>& notes, const Detail& detail);
// In full.
void print_notes(std::ostream& out, const std::vector<std::string>& notes);

// "(7 more rows: --all)", of a table that shows some of them; nothing for none.
void print_more_rows(std::ostream& out, std::size_t more);

struct Bar {
  std::string label;
  double value = 0;
  std::string note;
};

// One line per bar, at most 50 characters long; `origin` is where a bar has length 0.
void print_bars(std::ostream& out, const std::vector<Bar>& bars, double origin);

// How many decimals a column of figures of a prediction has: four digits of the least one, more than it is known to.
int decimals_of(double least);

// "58.9": in GiB.
std::string gib_text(Bytes bytes);

}  // namespace dovetail::cli
