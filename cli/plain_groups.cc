// Reads a line from its left, string by string, as far as that is needed to find lists of plain names in it.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/plain_groups.h"

#include <utility>

namespace dovetail::cli {
namespace {

class PlainReader {
 public:
  explicit PlainReader(std::string_view line) : line_(line) {}

  std::optional<PlainGroups> groups() {
    if (!find_groups()) return std::nullopt;
    const std::size_t begin = at_;
    PlainGroups found;
    if (!take('[')) return std::nullopt;
    do {
      std::vector<std::string_view>& names = found.groups.emplace_back();
      if (!take('[')) return std::nullopt;
      do {
        const std::optional<std::string_view> name = take_plain();
        if (!name) return std::nullopt;
        names.push_back(*name);
      } while (take(','));
      if (!take(']')) return std::nullopt;
    } while (take(','));
    if (!take(']')) return std::nullopt;
    found.rest = std::string(line_.substr(0, begin)) + "[]" + std::string(line_.substr(at_));
    return found;
  }

 private:
  // Moves behind "groups": of the line itself.
  bool find_groups() {
    int depth = 0;
    for (; at_ < line_.size(); ++at_) {
      const char c = line_[at_];
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (c != '"') continue;
      const std::size_t begin = ++at_;
      while (at_ < line_.size() && line_[at_] != '"') at_ += line_[at_] == '\\' ? 2 : 1;
      if (depth != 1 || line_.substr(begin, at_ - begin) != "groups") continue;
      ++at_;
      return take(':');
    }
    return false;
  }
  bool take(char wanted) {
    const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
    while (at_ < line_.size() && is_space(line_[at_])) ++at_;
    if (at_ >= line_.size() || line_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  // A string of printable ASCII without escapes.
  std::optional<std::string_view> take_plain() {
    if (!take('"')) return std::nullopt;
    const std::size_t end = line_.find('"', at_);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view name = line_.substr(at_, end - at_);
    bool is_plain = true;  // of all letters at once
    for (const char c : name) is_plain = is_plain & (c >= ' ') & (c <= '~') & (c != '\\');
    if (!is_plain) return std::nullopt;
    at_ = end + 1;
    return name;
  }

  std::string_view line_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<PlainGroups> plain_groups_in(std::string_view line) {
  return PlainReader(line).groups();
}

}  // namespace dovetail::cli
