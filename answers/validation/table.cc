// Splits CSV files at commas and reads their numbers.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/table.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace dovetail::yardsticks {
namespace {

std::vector<std::string> fields_of(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::vector<std::string> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    fields.emplace_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

}  // namespace

const std::string& TableRow::text(const std::string& column) const {
  const auto found = fields_.find(column);
  if (found == fields_.end()) throw InputError(where_ + ": expected a column " + column);
  return found->second;
}

std::optional<double> TableRow::number_if(const std::string& column) const {
  const std::string& field = text(column);
  if (field.empty() || field == "n/a") return std::nullopt;
  double value = 0;
  const auto [end, status] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (status != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) {
    throw InputError(where_ + ": " + column + ": expected a number, found \"" + field + "\"");
  }
  return value;
}

double TableRow::number(const std::string& column) const {
  if (const std::optional<double> value = number_if(column)) return *value;
  throw InputError(where_ + ": " + column + ": expected a number, found nothing");
}

std::int64_t TableRow::count(const std::string& column) const {
  const double value = number(column);
  if (value < 0 || value != std::floor(value) || value > 0x1p53) {
    throw InputError(where_ + ": " + column + ": expected a whole number, found \"" + text(column) +
                     "\"");
  }
  return static_cast<std::int64_t>(value);
}

std::int64_t TableRow::count_or(const std::string& column, std::int64_t otherwise) const {
  return number_if(column) ? count(column) : otherwise;
}

std::vector<TableRow> read_table(const std::string& path) {
  const std::string content = read_file(path);
  const std::string name = path.substr(path.rfind('/') + 1);
  std::vector<TableRow> rows;
  std::vector<std::string> names;
  std::string_view rest = content;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    const std::vector<std::string> fields = fields_of(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (names.empty()) {
      names = fields;
      continue;
    }
    const std::string where = name + ":" + std::to_string(number);
    if (fields.size() != names.size()) {
      throw InputError(where + ": expected " + std::to_string(names.size()) + " fields, found " +
                       std::to_string(fields.size()));
    }
    std::map<std::string, std::string> row;
    for (std::size_t i = 0; i < names.size(); ++i) row[names[i]] = fields[i];
    rows.emplace_back(where, std::move(row));
  }
  return rows;
}

}  // namespace dovetail::yardsticks
