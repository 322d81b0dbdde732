// Writes a command's result as JSON or, where it is a table, as CSV or Markdown, to standard output
// or to a file.
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

Cell cell_of(const ordered_json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

using Cells = std::vector<std::pair<std::string, Cell>>;

void flatten(const ordered_json& object, const std::string& prefix, Cells& cells) {
  for (const auto& [key, value] : object.items()) {
    const bool is_list = value.is_array() && !value.empty() && value.front().is_object();
    if (is_list) continue;  // a table of its own
    if (value.is_object()) {
      flatten(value, prefix + key + ".", cells);
    } else {
      cells.emplace_back(prefix + key, cell_of(value));
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

enum class Format { Json, Csv, Markdown };

Format format_of_file(const std::string& name) {
  if (name.ends_with(".csv")) return Format::Csv;
  return name.ends_with(".md") ? Format::Markdown : Format::Json;
}

std::string document_text(const Document& document, Format format) {
  switch (format) {
    case Format::Csv:
      return csv_of(document.table());
    case Format::Markdown:
      return markdown_of(document.table());
    case Format::Json:
      break;
  }
  return with_tool(document.json());
}

}  // namespace

Table table_of_document(const ordered_json& document) {
  Table table;
  std::vector<Cells> lines;
  for (const ordered_json& row : rows_of(document)) {
    Cells& cells = lines.emplace_back();
    flatten(row, "", cells);
    for (const auto& [name, value] : cells) {
      if (std::ranges::find(table.columns, name, &Column::key) == table.columns.end())
        table.columns.push_back({.key = name, .title = name});
    }
  }
  for (const Cells& cells : lines) {
    Table::Row& row = table.rows.emplace_back();
    for (const Column& column : table.columns) {
      const auto found = std::ranges::find(cells, column.key, &Cells::value_type::first);
      row.cells.push_back(found == cells.end() ? Cell() : found->second);
    }
  }
  return table;
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
  return {.json = json, .csv = false, .markdown = false, .output = output};
}

bool replaces_report(const DocumentOptions& options) {
  return options.json || options.csv || options.markdown || options.output == "-";
}

void refuse_beside(const DocumentOptions& options, const std::string& what, bool given) {
  if (!given || !replaces_report(options)) return;
  throw InputError(what + " has no effect beside --json, --csv, --markdown or -o -");
}

NamedFile document_file(const DocumentOptions& options) {
  return {"-o", options.output == "-" ? "" : options.output};
}

std::string with_tool(const std::string& json) {
  if (json.starts_with("{\n \"$schema\":")) return json;  // a JSON Schema is no document of its own
  const std::size_t schema = json.find("\"schema\":");
  DOVETAIL_CHECK(schema != std::string::npos) << json.substr(0, 80);
  const std::size_t comma = json.find(',', schema);
  DOVETAIL_CHECK(comma != std::string::npos) << json.substr(0, 80);
  const std::size_t line = json.rfind('\n', schema);
  const std::string indent = line == std::string::npos ? " " : json.substr(line, schema - line);
  return json.substr(0, comma + 1) + indent + "\"tool\": " + tool_json().dump() +
         json.substr(comma);
}

void put_document(const DocumentOptions& options, const Document& document, std::ostream& out) {
  if (!options.output.empty() && options.output != "-")
    write_file(options.output, document_text(document, format_of_file(options.output)));
  if (!replaces_report(options)) return;
  const Format format = options.csv        ? Format::Csv
                        : options.markdown ? Format::Markdown
                                           : Format::Json;
  out << document_text(document, format);
}

void put_document(const DocumentOptions& options, const std::function<std::string()>& make,
                  std::ostream& out) {
  std::string made;
  const auto json = [&] { return made.empty() ? made = make() : made; };
  const auto table = [&] { return table_of_document(ordered_json::parse(json())); };
  put_document(options, Document{.json = json, .table = table}, out);
}

}  // namespace dovetail::cli
