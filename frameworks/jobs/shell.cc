// Splits a script into words as a shell does, and sorts them into variables and flags.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/shell.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "base/error.h"

namespace dovetail::frameworks {
namespace {

// Variables within variables can make much of a few lines.
constexpr std::size_t kLongestWord = 1 << 16, kMostFlags = 1 << 16;
constexpr int kDeepestWord = 16;

// Words behind which a command, or a variable that is set, begins.
constexpr std::array<std::string_view, 7> kBeforeCommands = {
    "export", "local", "declare", "readonly", "then", "else", "do"};

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name_part(char c) {
  return is_name_start(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

using Variables = std::map<std::string, std::string>;

// $((A * B)): whole numbers, variables, + - * / % and parentheses.
class Arithmetic {
 public:
  Arithmetic(std::string_view text, const Variables& variables)
      : text_(text), variables_(variables) {}

  std::optional<std::int64_t> value() {
    const std::int64_t result = sum(0);
    if (next() != '\0') is_wrong_ = true;
    if (is_wrong_) return std::nullopt;
    return result;
  }

 private:
  char next() {
    while (at_ < text_.size() &&
           (is_space(text_[at_]) || text_[at_] == '$' || text_[at_] == '{' || text_[at_] == '}')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::int64_t wrong() {
    is_wrong_ = true;
    return 0;
  }

  std::int64_t sum(int depth) {
    std::int64_t left = product(depth);
    for (char c = next(); c == '+' || c == '-'; c = next()) {
      ++at_;
      const std::int64_t right = product(depth);
      if (__builtin_add_overflow(left, c == '+' ? right : -right, &left)) return wrong();
    }
    return left;
  }

  std::int64_t product(int depth) {
    std::int64_t left = atom(depth);
    for (char c = next(); c == '*' || c == '/' || c == '%'; c = next()) {
      ++at_;
      const std::int64_t right = atom(depth);
      if (c == '*') {
        if (__builtin_mul_overflow(left, right, &left)) return wrong();
      } else if (right <= 0) {
        return wrong();
      } else {
        left = c == '/' ? left / right : left % right;
      }
    }
    return left;
  }

  std::int64_t atom(int depth) {
    if (next() == '(' && depth < kDeepestWord) {
      ++at_;
      const std::int64_t inner = sum(depth + 1);
      if (next() != ')') return wrong();
      ++at_;
      return inner;
    }
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_part(text_[at_])) ++at_;
    std::string_view word = text_.substr(begin, at_ - begin);
    const auto known = variables_.find(std::string(word));
    if (known != variables_.end()) word = known->second;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool is_number =
        !word.empty() && error == std::errc() && end == word.data() + word.size();
    return is_number && number >= 0 ? number : wrong();
  }

  std::string_view text_;
  const Variables& variables_;
  std::size_t at_ = 0;
  bool is_wrong_ = false;
};

// Where the bracket that opens at `open` closes; the end of the text where it does not.
std::size_t closing(std::string_view text, std::size_t open) {
  const char opens = text[open];
  const char closes = opens == '(' ? ')' : '}';
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == opens) ++depth;
    if (text[at] == closes && --depth == 0) return at;
  }
  return text.size();
}

class ScriptReader {
 public:
  ScriptReader(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  Script read() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n' || c == ';' || c == '&' || c == '|') {
        end_of_command();
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '\\' && text_.substr(at_, 2) == "\\\n") {
        at_ += 2;
      } else if (is_space(c) || c == '(' || c == ')') {
        ++at_;
      } else {
        take(word());
      }
    }
    return std::move(script_);
  }

 private:
  void end_of_command() {
    ++at_;
    is_start_ = true;
    takes_value_ = false;
  }

  // Up to blank, bracket or end of command, without its quotes.
  std::string word() {
    std::string word;
    char quote = '\0';
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      const bool ends = is_space(c) || std::string_view("();&|").find(c) != std::string_view::npos;
      if ((quote == '\0' && ends) || word.size() > kLongestWord) break;
      if (c == quote) {
        quote = '\0';
      } else if (quote == '\0' && (c == '"' || c == '\'')) {
        quote = c;
      } else if (c == '\\' && quote != '\'') {
        if (++at_ == text_.size()) break;
        if (text_[at_] != '\n') word += text_[at_];
      } else if (c == '$' && quote != '\'') {
        word += expansion();
        --at_;
      } else {
        word += c;
      }
    }
    return word;
  }

  // Of what begins with $ at at_; leaves at_ behind it.
  std::string expansion() {
    const std::size_t begin = at_++;
    const std::string_view rest = text_.substr(at_);
    std::size_t end = at_;
    if (rest.starts_with("((") || rest.starts_with('(') || rest.starts_with('{')) {
      end = std::min(closing(text_, at_) + 1, text_.size());
    } else {
      while (end < text_.size() && is_name_part(text_[end])) ++end;
    }
    at_ = end;
    const std::string_view whole = text_.substr(begin, end - begin);
    return expanded(whole).value_or(std::string(whole));
  }

  // `whole`: "$NAME", "${NAME:-other}", "$((1 + 2))"; nothing where it is anything else.
  std::optional<std::string> expanded(std::string_view whole) {
    if (whole.starts_with("$((") && whole.ends_with("))")) {
      const auto number = Arithmetic(whole.substr(3, whole.size() - 5), script_.variables).value();
      if (!number) return std::nullopt;
      return std::to_string(*number);
    }
    std::string_view inner = whole.substr(1);
    if (inner.starts_with('{') && inner.ends_with('}')) inner = inner.substr(1, inner.size() - 2);
    std::size_t end = 0;
    while (end < inner.size() && is_name_part(inner[end])) ++end;
    const std::string name(inner.substr(0, end));
    std::string_view rest = inner.substr(end);
    if (rest == "[@]" || rest == "[*]") return "";  // its flags were read where it is set
    const auto known = script_.variables.find(name);
    const bool is_set = known != script_.variables.end() && !known->second.empty();
    if (is_set && (rest.empty() || rest.starts_with(":-") || rest.starts_with('-'))) {
      return known->second;
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    const bool has_other = rest.starts_with('-') || rest.starts_with('=');
    if (name.empty() || !has_other || depth_ > kDeepestWord) return std::nullopt;
    return ScriptReader(*this, rest.substr(1)).word();
  }

  // Of a default value, which is a word of its own.
  ScriptReader(const ScriptReader& around, std::string_view text)
      : file_(around.file_), text_(text), depth_(around.depth_ + 1) {
    script_.variables = around.script_.variables;
  }

  void take(const std::string& word) {
    if (is_start_ && std::ranges::find(kBeforeCommands, word) != kBeforeCommands.end()) return;
    std::size_t name = 0;
    while (name < word.size() && is_name_part(word[name])) ++name;
    const std::string_view rest = std::string_view(word).substr(name);
    const bool adds = rest.starts_with("+=");
    if (is_start_ && name > 0 && is_name_start(word[0]) && (adds || rest.starts_with('='))) {
      std::string& variable = script_.variables[word.substr(0, name)];
      const std::string value(rest.substr(adds ? 2 : 1));
      variable = adds ? variable + value : value;
      if (variable.size() > kLongestWord) variable.resize(kLongestWord);
      collect(value);
      takes_value_ = false;
      return;
    }
    is_start_ = false;
    collect(word);
  }

  // Flags and their values in a word, which may hold several where it was quoted.
  void collect(std::string_view words) {
    while (!words.empty()) {
      std::size_t end = 0;
      while (end < words.size() && !is_space(words[end])) ++end;
      const std::string_view one = words.substr(0, end);
      words.remove_prefix(std::min(end + 1, words.size()));
      if (one.size() > 2 && one.starts_with("--") && is_name_start(one[2])) {
        if (script_.flags.size() == kMostFlags) {
          throw InputError(file_ + ": more than " + std::to_string(kMostFlags) + " flags");
        }
        const std::size_t equals = std::min(one.find('='), one.size());
        script_.flags.push_back({.name = std::string(one.substr(0, equals))});
        if (equals < one.size()) script_.flags.back().value = one.substr(equals + 1);
        takes_value_ = equals == one.size();
      } else if (!one.empty() && takes_value_) {
        script_.flags.back().value = one;
        takes_value_ = false;
      }
    }
  }

  const std::string& file_;
  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool is_start_ = true, takes_value_ = false;
  Script script_;
};

}  // namespace

Script read_script(const std::string& file, std::string_view text) {
  return ScriptReader(file, text).read();
}

}  // namespace dovetail::frameworks
