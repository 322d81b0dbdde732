// Finds where each object of a JSON text begins and ends by counting braces outside of strings, so
// that files may be cut off at their end and need not fit a parser's memory.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/json_items.h"

#include "base/error.h"

namespace dovetail::imports {
namespace {

constexpr int kDeepest = 64;

// Where the object that opens at `begin` ends, one past its brace; npos where the text ends first.
// `line` goes along.
std::size_t end_of_object(const std::string& name, std::string_view text, std::size_t begin,
                          std::size_t& line) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = begin; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (in_string) {
      if (c == '\\') {
        ++at;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepest) {
        throw InputError(name + ": line " + std::to_string(line) + ": nested deeper than " +
                         std::to_string(kDeepest) + " levels");
      }
    } else if (c == '}' || c == ']') {
      if (--depth == 0) return at + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace

JsonItemsEnd for_each_json_item(const std::string& name, std::string_view text,
                                const std::function<void(const JsonItem&)>& visit) {
  JsonItemsEnd end;
  std::size_t line = 1;
  std::size_t told = 0;  // the last line that was counted as another one
  std::size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0;  // UTF-8's byte order mark
  while (at < text.size()) {
    const char c = text[at];
    if (c == '{') {
      const std::size_t first = line;
      const std::size_t stop = end_of_object(name, text, at, line);
      if (stop == std::string_view::npos) {
        end.is_cut_off = true;
        end.cut_line = first;
        return end;
      }
      ++end.items;
      visit({text.substr(at, stop - at), first});
      at = stop;
      continue;
    }
    if (c == '\n') {
      ++line;
    } else if (std::string_view(" \t\r,[]").find(c) == std::string_view::npos && told != line) {
      told = line;
      ++end.other_lines;
    }
    ++at;
  }
  return end;
}

}  // namespace dovetail::imports
