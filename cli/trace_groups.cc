// A row for groups that follow each other and differ in their names alone.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_groups.h"

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "cli/text.h"

namespace dovetail::cli {
namespace {

// Groups that follow each other and are alike in all but their name, as one row.
struct GroupRow {
  imports::ShardedGroup group;
  std::string name;
  std::size_t count = 1;
};

std::vector<GroupRow> group_rows(const imports::Sharding& sharding) {
  std::vector<GroupRow> rows;
  for (const imports::ShardedGroup& group : sharding.groups) {
    const std::string name = group.name.empty() ? "root" : group.name;
    if (!rows.empty()) {
      imports::ShardedGroup alike = rows.back().group;
      alike.name = group.name;
      if (alike == group) {
        rows.back().name += (rows.back().count == 1 ? " to " : "");
        rows.back().name.replace(rows.back().name.rfind(" to ") + 4, std::string::npos, name);
        ++rows.back().count;
        continue;
      }
    }
    rows.push_back({group, name});
  }
  return rows;
}

}  // namespace

void print_groups(std::ostream& out, std::int64_t rank, const imports::Sharding& sharding) {
  out << '\n';
  print_text(out, "groups of FSDP2 (measured; gathers and reductions a step), rank " +
                      std::to_string(rank));
  const auto size = [](Bytes bytes, const std::string& dtype) {
    if (bytes <= Bytes(0)) return std::string("-");
    return to_string(bytes) + (dtype.empty() ? "" : " " + dtype);
  };
  const auto count = [](double of_a_step) {
    return fixed(of_a_step, of_a_step == std::floor(of_a_step) ? 0 : 1);
  };
  print_table(
      out,
      table_of<GroupRow>(
          {{{"", "group"}, &GroupRow::name},
           {{"", "groups"}, &GroupRow::count},
           {{"", "parameters each"},
            [](const GroupRow& row) {
              return row.group.elements > 0 ? Cell(row.group.elements) : Cell();
            }},
           {{"", "gathered"},
            [&](const GroupRow& row) { return size(row.group.gathered, row.group.gathered_as); }},
           {{"", "in forward"}, [&](const GroupRow& row) { return count(row.group.forward); }},
           {{"", "in backward"}, [&](const GroupRow& row) { return count(row.group.backward); }},
           {{"", "reduced"},
            [&](const GroupRow& row) { return size(row.group.reduced, row.group.reduced_as); }},
           {{"", "reductions"}, [&](const GroupRow& row) { return count(row.group.reductions); }},
           {{"", "all-reduces"},
            [&](const GroupRow& row) { return count(row.group.all_reduces); }}},
          group_rows(sharding)));
}

}  // namespace dovetail::cli
