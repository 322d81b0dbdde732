// A table: columns, each of them one line, and rows of typed cells; printed as text, JSON, CSV and
// Markdown.
//
//   const std::vector<Field<Plan>> fields = {
//       {{"plan", "plan"}, &Plan::name},
//       {{"step_us", "step ms", Unit::Milliseconds, {2}}, &Plan::step},
//       {{"gain_percent", "gain", Unit::Percent, {1, Sign::Always}}, &Plan::gain},  // a function
//       {{"ranks"}, &Plan::ranks},          // without a title: only in documents
//       {{"", "verdict"}, verdict_on}};     // without a key: only for people
//   const Table table = table_of(fields, plans);
//
//   text                      rows_json                     csv
//   plan  step ms    gain     [{"plan": "ddp",              plan,step_us,gain_percent,ranks
//   ddp     12.35  +3.2 %       "step_us": 12345.0, ...}]   ddp,12345.0,3.2,8
//
// What people read is rounded to the column's digits and has its unit. Documents have the value
// itself, a Duration in microseconds and Bytes in bytes, which the key says ("step_us",
// "size_bytes"), and null for nothing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "base/words.h"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace dovetail {

// How people read a figure. Own: a Duration or Bytes as to_string writes it, a number by its
// digits.
enum class Unit {
  Own,
  Milliseconds,  // of a Duration: "12.35"
  Microseconds,  // of a Duration: "12345.0"
  Gib,           // of Bytes: "58.9"
  Percent,       // of a number in percent: "3.2 %"
  Share,         // of a part of 1: 0.032 as "3.2 %"
  Times,         // of a factor: "x1.25"
};

enum class Sign { OfNegative, Always };

// Behind the point.
struct Digits {
  int count = 0;
  Sign sign = Sign::OfNegative;
};

enum class Align { Right, Left };

struct Column {
  // In documents; a dot makes an object: "steps.priced" is {"steps": {"priced": 1}}, which is null
  // where nothing in it is known. Empty: not in documents.
  std::string key;
  std::optional<std::string> title = std::nullopt;  // for people; nothing: not for them
  Unit unit = Unit::Own;
  Digits digits = {};
  int spare = 0;  // 0 stays where a table is too wide for the terminal; else 1 goes first, then 2
  Align align =
      Align::Right;  // of texts: Left, they are cut where there is no room. The first column is one
  std::string nothing = "-";  // what people read where there is none
};

// A value, or nothing. What is no finite number is nothing.
class Cell {
 public:
  using Value = std::variant<std::monostate, bool, std::int64_t, double, Duration, Bytes,
                             std::string, std::vector<std::string>>;

  Cell() = default;
  Cell(std::nullopt_t) {}
  Cell(std::same_as<bool> auto value) : value_(value) {}
  template <std::integral Number>
  requires(!std::same_as<Number, bool>) Cell(Number value)
      : value_(static_cast<std::int64_t>(value)) {}
  Cell(double value);
  Cell(Duration value) : value_(value) {}
  Cell(Bytes value) : value_(value) {}
  Cell(std::string value) : value_(std::move(value)) {}
  Cell(std::string_view value) : value_(std::string(value)) {}
  Cell(const char* value) : value_(std::string(value)) {}
  Cell(std::vector<std::string> value) : value_(std::move(value)) {}
  template <Worded Enum>
  Cell(Enum value) : value_(std::string(dovetail::to_string(value))) {}
  template <class T>
  Cell(const std::optional<T>& value) : Cell(value ? Cell(*value) : Cell()) {}

  // The same value, for people in other words than the column's.
  [[nodiscard]] Cell shown_as(std::string text) const;

  [[nodiscard]] const Value& value() const { return value_; }
  [[nodiscard]] bool is_nothing() const { return std::holds_alternative<std::monostate>(value_); }
  // What people read.
  [[nodiscard]] std::string text(const Column& column) const;

 private:
  Value value_;
  std::optional<std::string> text_;
};

// The colour of a line, where standard output is a terminal that wants any.
enum class Tone { Plain, Good, Warning };

// REQUIRES: every row has as many cells as there are columns.
struct Table {
  struct Row {
    std::vector<Cell> cells;
    Tone tone = Tone::Plain;
  };
  std::vector<Column> columns;
  std::vector<Row> rows;
};

// A column and where its cells come from.
template <class Row>
struct Field {
  Column column;
  std::function<Cell(const Row&)> of;
};

// A line for each row, in their order.
template <class Row, class Rows>
Table table_of(const std::vector<Field<Row>>& fields, const Rows& rows,
               const std::type_identity_t<std::function<Tone(const Row&)>>& tone = {}) {
  Table table;
  for (const Field<Row>& field : fields) table.columns.push_back(field.column);
  for (const Row& row : rows) {
    Table::Row line;
    for (const Field<Row>& field : fields) line.cells.push_back(field.of(row));
    if (tone) line.tone = tone(row);
    table.rows.push_back(std::move(line));
  }
  return table;
}

struct TextLine {
  std::string text;
  Tone tone = Tone::Plain;
};

// A table for people, line by line: the first column and texts to the left, numbers to the right,
// no blanks at ends of lines. A table without any title has no line of titles, and its empty columns
// are left out.
struct TableText {
  std::vector<TextLine> lines;
  std::vector<std::string> missing;  // titles of the columns that had no room
};
// Where it is wider than `room`, titles are broken over lines; then columns are left out that can be
// spared, texts cut, and then columns left out from the right.
TableText text_of(const Table& table, std::size_t room);
// As wide as it is, each line behind so many blanks.
void print_whole(std::ostream& out, const Table& table, std::size_t indent = 0);

// The rows of a document: an array of objects, and the object of one of them.
nlohmann::ordered_json rows_json(const Table& table);
nlohmann::ordered_json row_json(const Table& table, std::size_t row);

// A line of keys, then a line a row; quoted as RFC 4180 has it.
std::string csv_of(const Table& table);

// As pages and issues show it: every column that has a title.
std::string markdown_of(const Table& table);

}  // namespace dovetail
