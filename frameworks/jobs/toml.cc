// Reads TOML from left to right, one key after the other.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/toml.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace dovetail::frameworks {
namespace {

constexpr int kDeepest = 8;  // arrays and inline tables within each other

class TomlReader {
 public:
  TomlReader(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  std::vector<OptionText> read() {
    std::string table;
    for (skip(OverLines); at_ < text_.size(); skip(OverLines)) {
      if (text_[at_] == '[') {
        table = table_name();
      } else {
        pair(table);
      }
      skip(InLine);
      if (at_ < text_.size() && text_[at_] != '\n') fail("expected the end of the line");
    }
    return std::move(options_);
  }

 private:
  enum Span { InLine, OverLines };

  [[noreturn]] void fail(const std::string& message) const {
    const auto lines = std::ranges::count(text_.substr(0, std::min(at_, text_.size())), '\n');
    throw InputError(file_ + ":" + std::to_string(lines + 1) + ": " + message);
  }

  [[nodiscard]] char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // Blanks and comments, and ends of lines where they mean nothing.
  void skip(Span span) {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ == text_.size()) return;
      const bool is_blank = text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r';
      if (!is_blank && (text_[at_] != '\n' || span == InLine)) return;
    }
  }

  void take(char expected, const std::string& where) {
    if (next() != expected) fail(std::string("expected ") + expected + " " + where);
    ++at_;
  }

  std::string table_name() {
    ++at_;
    if (next() == '[') fail("arrays of tables, [[NAME]], are not read");
    std::string name = key();
    take(']', "behind the name of a table");
    return name;
  }

  // a.b."c d"
  std::string key() {
    std::string name;
    while (true) {
      skip(InLine);
      if (next() == '"' || next() == '\'') {
        name += string();
      } else {
        const std::size_t begin = at_;
        while (std::isalnum(static_cast<unsigned char>(next())) != 0 || next() == '_' ||
               next() == '-') {
          ++at_;
        }
        if (begin == at_) fail("expected a key");
        name += text_.substr(begin, at_ - begin);
      }
      skip(InLine);
      if (next() != '.') return name;
      ++at_;
      name += '.';
    }
  }

  void pair(const std::string& table, int depth = 0) {
    const std::string name = (table.empty() ? "" : table + ".") + key();
    take('=', "behind the key " + name);
    skip(InLine);
    if (next() == '{') return inline_table(name, depth + 1);
    std::string value = this->value(depth);
    if (std::ranges::find(options_, name, &OptionText::name) != options_.end()) {
      fail("the key " + name + " is there twice");
    }
    options_.push_back({.name = name, .value = std::move(value)});
  }

  void inline_table(const std::string& name, int depth) {
    if (depth > kDeepest) fail("tables lie too deep within each other");
    ++at_;
    skip(InLine);
    while (next() != '}') {
      pair(name, depth);
      skip(InLine);
      if (next() != '}') take(',', "or } in an inline table");
    }
    ++at_;
  }

  std::string value(int depth) {
    if (next() == '"' || next() == '\'') return string();
    if (next() == '[') return array(depth + 1);
    const std::size_t begin = at_;
    while (std::string_view(",]}# \t\r\n").find(next()) == std::string_view::npos &&
           at_ < text_.size()) {
      ++at_;
    }
    std::string value(text_.substr(begin, at_ - begin));
    if (value.empty()) fail("expected a value");
    const char first = value.front();
    const bool is_number = std::isdigit(static_cast<unsigned char>(first)) != 0 || first == '-' ||
                           first == '+' || value == "inf" || value == "nan";
    if (!is_number && value != "true" && value != "false") {
      fail("expected a number, a string in quotes, true or false, found \"" + value + "\"");
    }
    std::erase(value, '_');
    if (first == '+') value.erase(0, 1);
    return value;
  }

  std::string array(int depth) {
    if (depth > kDeepest) fail("arrays lie too deep within each other");
    ++at_;
    std::string list;
    for (skip(OverLines); next() != ']'; skip(OverLines)) {
      if (next() == '{') fail("tables within arrays are not read");
      const bool is_list = next() == '[';
      const std::string one = value(depth);
      list += (list.empty() ? "" : ",") + (is_list ? "[" + one + "]" : one);
      skip(OverLines);
      if (next() != ']') take(',', "or ] in an array");
    }
    ++at_;
    return list;
  }

  std::string string() {
    const char quote = text_[at_++];
    if (text_.substr(at_, 2) == std::string(2, quote))
      fail("strings over several lines are not read");
    std::string value;
    for (; next() != quote; ++at_) {
      if (at_ == text_.size() || next() == '\n') fail("a string without its closing quote");
      if (quote == '"' && next() == '\\') {
        ++at_;
        if (next() == 'n' || next() == 't') {
          value += ' ';  // messages are of one line
          continue;
        }
        if (next() != '"' && next() != '\\') fail("an escape in a string that is not read");
      }
      value += next();
    }
    ++at_;
    return value;
  }

  const std::string& file_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<OptionText> options_;
};

}  // namespace

std::vector<OptionText> read_toml(const std::string& file, std::string_view text) {
  return TomlReader(file, text).read();
}

}  // namespace dovetail::frameworks
