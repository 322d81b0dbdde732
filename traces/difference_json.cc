// Writes a Difference as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "traces/compare_text.h"
#include "traces/difference.h"

namespace dovetail::traces {
namespace {

using nlohmann::ordered_json;

ordered_json times_json(const std::vector<Moved>& list) {
  ordered_json rows = ordered_json::array();
  for (const Moved& each : list) {
    rows.push_back({{"what", each.what},
                    {"first_us", to_us(each.first)},
                    {"second_us", to_us(each.second)},
                    {"change_us", to_us(each.change())}});
  }
  return rows;
}

ordered_json moved_json(const std::vector<Moved>& list) {
  ordered_json rows = ordered_json::array();
  for (const Moved& each : list) {
    rows.push_back({{"what", each.what},
                    {"kind", to_string(each.kind)},
                    {"first_count", each.first_count},
                    {"second_count", each.second_count},
                    {"first_us", to_us(each.first)},
                    {"second_us", to_us(each.second)},
                    {"change_us", to_us(each.change())}});
  }
  return rows;
}

}  // namespace

std::string to_json(const Difference& difference) {
  const ordered_json root = {{"schema", "dovetail.difference/1"},
                             {"kind", "difference"},
                             {"first", side_json(difference.first)},
                             {"second", side_json(difference.second)},
                             {"notes", difference.notes},
                             {"whole", times_json(difference.whole)},
                             {"activities", times_json(difference.activities)},
                             {"rows", moved_json(difference.moved)}};
  // Names come from files; a byte that is no UTF-8 must not end the report.
  return root.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dovetail::traces
