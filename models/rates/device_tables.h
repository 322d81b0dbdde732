// Tables of all GPUs that stand in one CSV, held in the program (gemm_files.h), and curves through their rows.
//
//   device,head_dim,tokens,...                      a line of names, then rows that begin with the device
//   static const auto kTables = read_device_tables<AttentionTable>(attention_file(), [](AttentionTable& table, const Cells& cells) {
//     table.add(number_of(cells[0]).value(), ...);
//   });
//
// Nobody outside writes these files: what is wrong in one is a fault of dovetail's, found when it is read first.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dovetail::models {

using Cells = std::vector<std::string>;  // of a row, behind the device

template <class Table>
using DeviceTables = std::map<std::string, std::shared_ptr<Table>, std::less<>>;

// Not negative; nothing: an empty cell.
inline std::optional<double> number_of(const std::string& cell) {
  if (cell.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  DOVETAIL_CHECK(error == std::errc() && value >= 0) << "a table's cell: " << cell;
  return value;
}

// `add` puts a row into the table of its device.
template <class Table, class Add>
DeviceTables<Table> read_device_tables(std::string_view csv, const Add& add) {
  DeviceTables<Table> tables;
  std::istringstream text{std::string(csv)};
  std::string line, cell;
  std::getline(text, line);
  const auto columns = static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
  while (std::getline(text, line)) {
    std::istringstream row(line);
    std::string device;
    std::getline(row, device, ',');
    Cells cells;
    while (std::getline(row, cell, ',')) cells.push_back(cell);
    cells.resize(columns);  // what is behind the last comma may be empty
    std::shared_ptr<Table>& table = tables[device];
    if (!table) table = std::make_shared<Table>();
    add(*table, cells);
  }
  return tables;
}

// What the entries, by rising key, have at `x`: `mean` of two neighbours and the second one's share, else that of the edge. REQUIRES:
// there is an entry.
template <class Entries, class Of, class Mean>
auto value_at(const Entries& entries, double x, const Of& of, const Mean& mean) {
  const auto above = entries.lower_bound(x);
  if (above == entries.begin()) return of(above->second);
  const auto below = std::prev(above);
  if (above == entries.end()) return of(below->second);
  return mean(of(below->second), of(above->second),
              (x - below->first) / (above->first - below->first));
}

}  // namespace dovetail::models
