// Writes the HTML report of a command: collects what all reports share (command, tool, results)
// and fills the page.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/page.h"

#include <utility>

#include "answers/page/page.h"
#include "base/json.h"
#include "cli/document.h"

namespace dovetail::cli {

using nlohmann::ordered_json;

report::Report start_page(const PageOptions& page, std::string title) {
  report::Report report;
  report.title = std::move(title);
  report.command = page.command;
  return report;
}

void add_notes(report::Report& report, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) report.assumptions.push_back({.text = note});
}

ordered_json figures_of(report::Report report) {
  for (std::string& result : report.results) result = with_tool(result);
  const ordered_json json = report::to_json(report);
  return ordered_json::parse(
      with_tool(json.dump(1, ' ', false, ordered_json::error_handler_t::replace)));
}

NewFile page_file(const PageOptions& page, const report::Report& report) {
  return {page.file, report::page(figures_of(report))};
}

std::string typed(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=:,./+@%";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? "'\\''" : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace dovetail::cli
