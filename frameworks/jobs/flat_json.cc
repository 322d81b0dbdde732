// Goes through a JSON value member by member.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/flat_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "frameworks/jobs/yaml.h"

namespace dovetail::frameworks {
namespace {

// Messages are of one line.
std::string in_one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

std::string plain_number(const nlohmann::json& value) {
  const double number = value.get<double>();
  const bool is_whole = std::abs(number) < 1e15 && number == std::floor(number);
  return is_whole ? std::to_string(static_cast<std::int64_t>(number)) : value.dump();
}

std::string scalar_text(const nlohmann::json& value) {
  if (value.is_string()) return in_one_line(value);
  return value.is_number() ? plain_number(value) : value.dump();
}

// "a,b,[c,d]"; of what has members "[...]".
std::string list_text(const nlohmann::json& list, int depth) {
  std::string text;
  for (const nlohmann::json& one : list) {
    if (one.is_object() || depth > 4) return "[...]";
    text += text.empty() ? "" : ",";
    text += one.is_array() ? "[" + list_text(one, depth + 1) + "]" : scalar_text(one);
  }
  return text;
}

void flatten(const nlohmann::json& value, const std::string& name, int depth, Flat& into) {
  if (value.is_object() && depth < 8) {
    for (const auto& [key, member] : value.items()) {
      flatten(member, (name.empty() ? "" : name + ".") + in_one_line(key), depth + 1, into);
    }
  } else if (value.is_null()) {
    into.nulls.push_back(name);
  } else {
    std::string text = value.is_object()  ? "{...}"
                       : value.is_array() ? list_text(value, 0)
                                          : scalar_text(value);
    into.options.push_back({.name = name, .value = std::move(text)});
  }
}

}  // namespace

bool Flat::has(std::string_view name) const {
  const std::string front = std::string(name) + ".";
  const auto is_it = [&](std::string_view other) {
    return other == name || other.starts_with(front);
  };
  return std::ranges::any_of(options, is_it, &OptionText::name) ||
         std::ranges::any_of(nulls, is_it);
}

Flat flat(const nlohmann::json& value) {
  Flat all;
  flatten(value, "", 0, all);
  return all;
}

Flat read_flat(const std::string& file) {
  const std::string text = read_file(file);
  const bool is_yaml = file.ends_with(".yaml") || file.ends_with(".yml");
  const nlohmann::json json =
      is_yaml ? read_yaml(file, text) : *parse_json(file, text, JsonComments::Passed);
  if (!json.is_object())
    throw InputError(file + ": expected " + (is_yaml ? "keys and values" : "an object of JSON"));
  return flat(json);
}

std::vector<OptionText> flat_json(const std::string& file, const std::string& text) {
  const std::unique_ptr<nlohmann::json> json = parse_json(file, text, JsonComments::Passed);
  if (!json->is_object()) throw InputError(file + ": expected an object of JSON");
  return flat(*json).options;
}

}  // namespace dovetail::frameworks
