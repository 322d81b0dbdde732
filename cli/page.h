// The HTML report that a command writes with --html (answers/page/page.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "answers/page/report.h"
#include "base/file.h"
#include "cli/outputs.h"

namespace dovetail::cli {

struct PageOptions {
  std::string file;     // empty: none is written
  std::string command;  // as it was typed
  [[nodiscard]] bool wanted() const { return !file.empty(); }
};

// For require_outputs.
inline NamedFile page_output(const PageOptions& page) { return {"--html", page.file}; }

// A report that so far says only what it is about.
report::Report start_page(const PageOptions& page, std::string title);

// Adds what a prediction assumes, with no known error.
void add_notes(report::Report& report, const std::vector<std::string>& notes);

// The report as JSON, in which it and each of its results names the tool that made it, as when a command
// prints them.
nlohmann::ordered_json figures_of(report::Report report);

NewFile page_file(const PageOptions& page, const report::Report& report);

// The words of a command line, quoted where a shell needs it.
std::string typed(const std::vector<std::string>& words);

}  // namespace dovetail::cli
