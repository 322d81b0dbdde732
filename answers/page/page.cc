// Fills the HTML template of a report: style, script, chart library, and the figures as JSON. Each
// placeholder is replaced once, and what was filled in is not searched again, so that no name in
// the figures can become markup.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/page/page.h"

#include "answers/page/page_files.h"
#include "base/error.h"
#include "base/json.h"

#include <map>
#include <string_view>

namespace dovetail::report {
namespace {

// JSON inside <script>: "</script>" or "<!--" in a name would end it or change how it is read.
std::string script_json(const nlohmann::ordered_json& value) {
  const std::string text =
      value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

// Replaces each "@NAME@" of the template, once over: what is filled in is not searched again.
std::string filled(std::string_view page, const std::map<std::string_view, std::string>& values) {
  std::string text;
  while (!page.empty()) {
    const std::size_t begin = page.find('@');
    text += page.substr(0, begin);
    if (begin == std::string_view::npos) break;
    const std::size_t end = page.find('@', begin + 1);
    DOVETAIL_CHECK(end != std::string_view::npos) << "page.html: a place without its end";
    text += values.at(page.substr(begin + 1, end - begin - 1));
    page.remove_prefix(end + 1);
  }
  return text;
}

}  // namespace

std::string page(const nlohmann::ordered_json& report) {
  return filled(kPage, {{"TITLE", escaped(report.at("title").get<std::string>())},
                        {"STYLE", std::string(kStyle)},
                        {"LIBRARY", std::string(kLibrary)},
                        {"SCRIPT", std::string(kScript)},
                        {"DATA", script_json(report)}});
}

}  // namespace dovetail::report
