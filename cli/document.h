// Where a command's document goes: what it reports, as JSON, or its table as CSV.
//
//   --json       on standard output, instead of the report for people
//   --csv        the rows of its table, likewise
//   --markdown   that table as people read it, for a page or an issue, likewise
//   -o FILE      into a file, beside the report; as CSV or Markdown where its name ends in .csv or
//                .md; "-" is --json
//
// The document is the same wherever it goes. "tool" in it says which dovetail wrote it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <ostream>
#include <string>

#include "base/table.h"
#include "cli/outputs.h"

namespace dovetail::cli {

struct DocumentOptions {
  bool json = false;
  bool csv = false;
  bool markdown = false;
  std::string output;  // empty: no file
};

// Of a command whose -o names a file that other commands read: a plan, a cluster, a workload.
DocumentOptions product_of(const std::string& output, bool json);

// Whether standard output holds the document, so that no report for people belongs there.
bool replaces_report(const DocumentOptions& options);

// Throws InputError where something of the report for people was asked for (`what`, as "compare:
// --timeline") and there is none.
void refuse_beside(const DocumentOptions& options, const std::string& what, bool given);

// -o, for require_outputs; without a path where it is no file.
NamedFile document_file(const DocumentOptions& options);

// What a command answers, made where it is asked for. REQUIRES: `json` gives an object that begins
// with "schema".
struct Document {
  std::function<std::string()> json;
  std::function<Table()> table;  // whose rows are those of the document
};

// Writes the document to where the options say; nothing is made where they say nothing. REQUIRES:
// the file was found writable.
void put_document(const DocumentOptions& options, const Document& document, std::ostream& out);
// Of a document whose table is what table_of_document finds in it.
void put_document(const DocumentOptions& options, const std::function<std::string()>& make,
                  std::ostream& out);

// A JSON text whose object begins with "schema", with the "tool" that wrote it behind that.
std::string with_tool(const std::string& json);

// What a file of this name holds: the text, or the text compressed where the name ends in .gz.
std::string as_named(const std::string& path, std::string text);

// "rows" of a document (else its first array of objects), its keys as titles. Objects within are
// flattened ("predicted.step_us"), arrays stand as JSON text. Throws InputError where there are no
// rows.
Table table_of_document(const nlohmann::ordered_json& document);

}  // namespace dovetail::cli
