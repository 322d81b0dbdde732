// A table in a CSV file: a line of names, then rows of as many fields. No quotes: ours have none.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::yardsticks {

class TableRow {
 public:
  TableRow(std::string where, std::map<std::string, std::string> fields)
      : where_(std::move(where)), fields_(std::move(fields)) {}

  // "nanotron_h100.csv:12"
  [[nodiscard]] const std::string& where() const { return where_; }
  // Each throws InputError with place and column: a column that is not there, a field that is no number.
  [[nodiscard]] const std::string& text(const std::string& column) const;
  [[nodiscard]] double number(const std::string& column) const;
  [[nodiscard]] std::int64_t count(const std::string& column) const;
  // Nothing where the field is empty or "n/a".
  [[nodiscard]] std::optional<double> number_if(const std::string& column) const;
  [[nodiscard]] std::int64_t count_or(const std::string& column, std::int64_t otherwise) const;

 private:
  std::string where_;
  std::map<std::string, std::string> fields_;
};

// Throws InputError: unreadable, a row with more or fewer fields than there are names.
std::vector<TableRow> read_table(const std::string& path);

}  // namespace dovetail::yardsticks
