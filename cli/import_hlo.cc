// What `dovetail import hlo` prints of a module: its collectives as XLA combined them.
//
//   collectives, in the order of the module
//   name            kind        type  parts       size  times  devices    what
//   all-reduce.7    all-reduce  f32       7  450.3 KiB      1  {0,1}      gradients
//
// An instruction in a loop is one row, named as in its first turn.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "cli/import.h"
#include "cli/text.h"

namespace dovetail::cli {
namespace {

constexpr std::size_t kMostRows = 40;
constexpr std::size_t kMostDevices = 8;  // of a group

std::string group_text(const std::vector<std::vector<std::int64_t>>& groups) {
  std::string text = "{";
  for (std::size_t i = 0; i < groups.front().size(); ++i) {
    if (i > 0) text += ",";
    if (i == kMostDevices) return text + "...} x " + std::to_string(groups.size());
    text += std::to_string(groups.front()[i]);
  }
  text += "}";
  return groups.size() > 1 ? text + " x " + std::to_string(groups.size()) : text;
}

// One instruction, in all turns of its loop.
struct Row {
  const imports::HloCollective* first = nullptr;
  std::size_t turns = 0;
};

std::vector<Row> rows_of(const std::vector<imports::HloCollective>& all) {
  std::vector<Row> rows;
  std::map<std::size_t, std::size_t> row_of_line;
  for (const imports::HloCollective& one : all) {
    const auto [found, is_new] = row_of_line.emplace(one.line, rows.size());
    if (is_new) rows.push_back({.first = &one});
    ++rows[found->second].turns;
  }
  return rows;
}

}  // namespace

void print_hlo_collectives(std::ostream& out, const std::vector<imports::HloCollective>& all) {
  if (all.empty()) return;
  const std::vector<Row> rows = rows_of(all);
  out << "collectives, in the order of the module\n";
  cli::print_table(
      out, table_of<Row>(
               {{{"", "name"}, [](const Row& row) { return row.first->name; }},
                {{"", "kind"},
                 [](const Row& row) {
                   return row.first->kind + (row.first->is_async ? " (async)" : "");
                 }},
                {{"", "type"}, [](const Row& row) { return row.first->type; }},
                {{"", "parts"}, [](const Row& row) { return row.first->parts; }},
                {{"", "size"}, [](const Row& row) { return row.first->bytes; }},
                {{"", "times"}, &Row::turns},
                {{"", "devices"}, [](const Row& row) { return group_text(row.first->groups); }},
                {{"", "what"},
                 [](const Row& row) {
                   return row.first->is_gradients ? "gradients" : "the step's own";
                 }}},
               std::span(rows).first(std::min(rows.size(), kMostRows))));
  if (rows.size() > kMostRows) out << "and " << rows.size() - kMostRows << " more\n";
}

}  // namespace dovetail::cli
