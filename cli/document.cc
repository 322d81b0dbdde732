// Writes a command's result as JSON or, where it is a table, as CSV, to standard output or to a
// file.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/document.h"

#include <zlib.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/tool_facts.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + "\"";
}

std::string cell(const ordered_json& value) {
  if (value.is_null()) return {};
  return quoted(value.is_string() ? value.get<std::string>() : value.dump());
}

using Cells = std::vector<std::pair<std::string, std::string>>;

void flatten(const ordered_json& object, const std::string& prefix, Cells& cells) {
  for (const auto& [key, value] : object.items()) {
    const bool is_list = value.is_array() && !value.empty() && value.front().is_object();
    if (is_list) continue;  // a table of its own
    if (value.is_object()) {
      flatten(value, prefix + key + ".", cells);
    } else {
      cells.emplace_back(prefix + key, cell(value));
    }
  }
}

const ordered_json& rows_of(const ordered_json& document) {
  const auto is_table = [](const ordered_json& value) {
    return value.is_array() && !value.empty() && value.front().is_object();
  };
  if (document.contains("rows") && is_table(document["rows"])) return document["rows"];
  for (const ordered_json& value : document) {
    if (is_table(value)) return value;
  }
  throw InputError("this document has no rows that CSV could hold: use JSON");
}

bool is_csv(const std::string& output) { return output.ends_with(".csv"); }

}  // namespace

std::string to_csv(const ordered_json& document) {
  std::vector<std::string> names;
  std::vector<Cells> lines;
  for (const ordered_json& row : rows_of(document)) {
    Cells& cells = lines.emplace_back();
    flatten(row, "", cells);
    for (const auto& [name, value] : cells) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + quoted(name);
  text += "\n";
  for (const Cells& cells : lines) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto found = std::ranges::find(cells, names[i], &Cells::value_type::first);
      text += (i == 0 ? "" : ",") + (found == cells.end() ? "" : found->second);
    }
    text += "\n";
  }
  return text;
}

std::string as_named(const std::string& path, std::string text) {
  if (!path.ends_with(".gz")) return text;
  constexpr int kGzip = 15 + 16;  // the largest window, with the header of gzip
  z_stream stream{};
  DOVETAIL_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK)
      << path;
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int code = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  DOVETAIL_CHECK(code == Z_STREAM_END) << path << " " << code;
  return packed;
}

DocumentOptions product_of(const std::string& output, bool json) {
  return {.json = json, .csv = false, .output = output};
}

bool replaces_report(const DocumentOptions& options) {
  return options.json || options.csv || options.output == "-";
}

void refuse_beside(const DocumentOptions& options, const std::string& what, bool given) {
  if (!given || !replaces_report(options)) return;
  throw InputError(what + " has no effect beside --json, --csv or -o -");
}

NamedFile document_file(const DocumentOptions& options) {
  return {"-o", options.output == "-" ? "" : options.output};
}

std::string with_tool(const std::string& json) {
  const std::size_t schema = json.find("\"schema\":");
  DOVETAIL_CHECK(schema != std::string::npos) << json.substr(0, 80);
  const std::size_t comma = json.find(',', schema);
  DOVETAIL_CHECK(comma != std::string::npos) << json.substr(0, 80);
  const std::size_t line = json.rfind('\n', schema);
  const std::string indent = line == std::string::npos ? " " : json.substr(line, schema - line);
  return json.substr(0, comma + 1) + indent + "\"tool\": " + tool_json().dump() +
         json.substr(comma);
}

void put_document(const DocumentOptions& options, const std::function<std::string()>& make,
                  std::ostream& out) {
  const bool to_file = !options.output.empty() && options.output != "-";
  if (!to_file && !replaces_report(options)) return;
  const std::string text = with_tool(make());
  const bool needs_csv = options.csv || is_csv(options.output);
  const std::string csv = needs_csv ? to_csv(ordered_json::parse(text)) : "";
  if (to_file) write_file(options.output, is_csv(options.output) ? csv : text);
  if (options.csv) {
    out << csv;
  } else if (replaces_report(options)) {
    out << text;
  }
}

}  // namespace dovetail::cli
