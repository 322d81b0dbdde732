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
#include "base/table.h"
#include "base/units.h"

namespace dovetail::cli {

// How much a report shows: --all rows of its tables, all --notes in full.
struct Detail {
  bool all = false;
  bool notes = false;
};

// A table that fits the terminal; a line names what it has no room for.
void print_table(std::ostream& out, const Table& table);

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
