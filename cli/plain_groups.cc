// Passes over a line's other members, and takes their place in it from the stream's.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/plain_groups.h"

#include "base/attempt.h"
#include "recordings/json_stream.h"

#include <utility>

namespace dovetail::cli {
namespace {

using imports::JsonStream;

// The string ahead, of printable ASCII without escapes. Those with escapes do not lie in the line.
bool take_plain(JsonStream& json, std::string_view line, std::vector<std::string_view>& names) {
  const std::string_view name = json.string();
  bool is_plain = name.data() >= line.data() && name.data() < line.data() + line.size();
  for (const char c : name) is_plain = is_plain & (c >= ' ') & (c <= '~');  // all letters at once
  names.push_back(name);
  return is_plain;
}

std::optional<schedule::NamedGroups> take_groups(JsonStream& json, std::string_view line) {
  schedule::NamedGroups groups;
  for (json.enter_array(); json.next_element();) {
    std::vector<std::string_view>& names = groups.emplace_back();
    for (json.enter_array(); json.next_element();) {
      if (!take_plain(json, line, names)) return std::nullopt;
    }
    if (names.empty()) return std::nullopt;
  }
  return groups.empty() ? std::nullopt : std::optional(std::move(groups));
}

std::optional<PlainGroups> cut_out(std::string_view line) {
  JsonStream json("line", line, imports::JsonCommas::Between);
  json.enter_object();
  while (const auto key = json.next_key()) {
    if (*key != "groups") {
      json.skip();
      continue;
    }
    const auto begin = static_cast<std::size_t>(json.position());
    auto groups = take_groups(json, line);
    if (!groups) return std::nullopt;
    const auto end = static_cast<std::size_t>(json.position());
    return PlainGroups{
        .rest = std::string(line.substr(0, begin)) + "[]" + std::string(line.substr(end)),
        .groups = *std::move(groups)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<PlainGroups> plain_groups_in(std::string_view line) {
  return attempt([&] { return cut_out(line); }).value.value_or(std::nullopt);
}

}  // namespace dovetail::cli
