// Prints a JSON Schema as text, one line for each key that a file may have: objects and the
// elements of lists (with "[]") are followed by their own keys, alternatives by the keys of each.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/show_schemas.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "cli/text.h"
#include "models/clusters/cluster.h"
#include "models/clusters/gpu_book.h"
#include "models/costs/costs_json.h"
#include "schedule/plan_json.h"
#include "schedule/program_json.h"
#include "traces/trace_json.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;

struct Format {
  std::string_view name;
  ordered_json (*schema)();
};

constexpr std::array kFormats = {Format{"dovetail.cluster/1", models::cluster_schema},
                                 Format{"dovetail.costs/1", models::costs_schema},
                                 Format{"dovetail.gpu/1", models::gpu_book_schema},
                                 Format{"dovetail.plan/1", schedule::plan_schema},
                                 Format{"dovetail.program/1", schedule::program_schema},
                                 Format{"dovetail.trace/1", traces::trace_schema}};

std::string range_of(const ordered_json& says) {
  const bool low = says.contains("minimum");
  const bool high = says.contains("maximum");
  if (low && high) return " from " + says["minimum"].dump() + " to " + says["maximum"].dump();
  if (low) return " >= " + says["minimum"].dump();
  return high ? " <= " + says["maximum"].dump() : "";
}

std::string value_of(const ordered_json& says) {
  if (says.contains("const")) return says["const"].dump();
  if (says.contains("enum")) {
    std::string list;
    for (const ordered_json& word : says["enum"]) list += (list.empty() ? "" : ", ") + word.dump();
    return list;
  }
  if (!says.contains("type")) return "one of several";
  const auto type = says["type"].get<std::string>();
  if (type == "array") return "list of " + value_of(says["items"]);
  if (type == "string") return "text";
  if (type == "boolean") return "true or false";
  return type + range_of(says);
}

void print_keys(const ordered_json& says, const std::string& path, std::ostream& out);

// What stands below a value: its keys, its elements', those of its alternatives.
void print_below(const ordered_json& says, const std::string& path, std::ostream& out) {
  if (says.contains("items")) print_below(says["items"], path + "[]", out);
  if (says.contains("additionalProperties") && says["additionalProperties"].is_object()) {
    print_below(says["additionalProperties"], path + ".*", out);
  }
  print_keys(says, path, out);
  for (const ordered_json& one : says.value("oneOf", ordered_json::array())) {
    print_below(one, path, out);
  }
}

void print_keys(const ordered_json& says, const std::string& path, std::ostream& out) {
  if (!says.contains("properties")) return;
  const ordered_json required = says.value("required", ordered_json::array());
  for (const auto& [key, field] : says["properties"].items()) {
    const bool is_required = std::ranges::find(required, ordered_json(key)) != required.end();
    const std::string place = path.empty() ? key : path + "." + key;
    const auto words = field.value("description", "");
    print_text(out, place + ": " + value_of(field) + (is_required ? "" : ", optional") +
                        (words.empty() ? "" : ": " + words));
    print_below(field, place, out);
  }
}

}  // namespace

std::vector<std::string> schema_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

ordered_json schema_named(const std::string& name) {
  const auto* const format = std::ranges::find(kFormats, name, &Format::name);
  DOVETAIL_CHECK(format != kFormats.end()) << name;
  return format->schema();
}

void print_schema(const ordered_json& schema, std::ostream& out) {
  print_text(out, schema["title"].get<std::string>());
  print_text(out, schema["description"].get<std::string>());
  print_below(schema, "", out);
}

}  // namespace dovetail::cli
