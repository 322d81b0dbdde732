// Writing reports.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/page.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "report/page.h"

namespace dovetail::cli {

report::Report start_page(const PageOptions& page, std::string title) {
  report::Report report;
  report.title = std::move(title);
  report.version = DOVETAIL_VERSION;
  report.command = page.command;
  return report;
}

void add_notes(report::Report& report, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) report.assumptions.push_back({.text = note});
}

NewFile page_file(const PageOptions& page, const report::Report& report) {
  return {page.file, report::page(report::to_json(report))};
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
