// Finds the tokens of a text (numbers, strings, brackets) and changes, repeats or swaps them, so
// that mutated files get past the first line of a parser.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/token_mutator.h"

#include "base/random.h"

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace dovetail {
namespace {

struct Span {
  std::size_t begin = 0, end = 0;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_of_number(char c) { return is_digit(c) || c == '.' || c == 'e' || c == 'E'; }

struct Tokens {
  std::vector<Span> numbers, strings, lines;
};

Tokens tokens_of(std::string_view text) {
  Tokens tokens;
  std::size_t line = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\n') {
      tokens.lines.push_back({line, ++i});
      line = i;
    } else if (text[i] == '"') {
      const std::size_t end = text.find_first_of("\"\n", i + 1);
      if (end == std::string_view::npos) break;
      if (text[end] == '"') tokens.strings.push_back({i, end + 1});
      i = text[end] == '"' ? end + 1 : end;
    } else if (is_digit(text[i])) {
      const std::size_t begin = i > 0 && text[i - 1] == '-' ? i - 1 : i;
      while (i < text.size() && is_of_number(text[i])) ++i;
      tokens.numbers.push_back({begin, i});
    } else {
      ++i;
    }
  }
  return tokens;
}

class Mutator {
 public:
  Mutator(std::string_view text, std::uint64_t seed) : text_(text), random_(seed) {}

  std::string mutate() {
    for (std::size_t left = 1 + below(4); left > 0; --left) change();
    return std::move(text_);
  }

 private:
  std::size_t below(std::size_t limit) {
    return static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(limit) - 1));
  }

  void change() {
    const Tokens tokens = tokens_of(text_);
    const std::size_t kind = below(8);
    if (kind < 3) return change_number(tokens.numbers);
    if (kind == 3) return take_another(tokens.numbers);
    if (kind < 6) return take_another(tokens.strings);
    change_lines(tokens.lines);
  }

  std::string cut(Span span) const { return text_.substr(span.begin, span.end - span.begin); }
  void put(Span span, std::string_view by) { text_.replace(span.begin, span.end - span.begin, by); }

  void take_another(const std::vector<Span>& all) {
    if (all.empty()) return;
    const std::string by = cut(all[below(all.size())]);
    put(all[below(all.size())], by);
  }

  void change_number(const std::vector<Span>& numbers) {
    if (numbers.empty()) return;
    const Span span = numbers[below(numbers.size())];
    static constexpr std::array<std::string_view, 9> kSpecial = {
        "0", "1", "-1", "2", "0.5", "1e300", "9223372036854775807", "4294967296", "65536"};
    if (below(4) == 0) return put(span, kSpecial[below(kSpecial.size())]);
    const std::string old = cut(span);
    if (old.size() > 15 || old.find_first_of(".eE") != std::string::npos) {
      char& digit = text_[span.begin + below(old.size())];
      if (is_digit(digit)) digit = static_cast<char>('0' + below(10));
      return;
    }
    const std::int64_t step = random_.between(-20, 20);
    const std::int64_t value = std::stoll(old);
    put(span, std::to_string(below(4) == 0 ? value * 2 : value + step));
  }

  void change_lines(const std::vector<Span>& lines) {
    if (lines.size() < 2) return;
    const Span one = lines[below(lines.size())];
    const Span other = lines[below(lines.size())];
    const std::string text = cut(one);
    switch (below(3)) {
      case 0:
        return put(one, "");
      case 1:
        return put({other.end, other.end}, text);
      default:
        break;
    }
    if (one.begin == other.begin) return;
    const std::string second = cut(other);
    const bool in_order = one.begin < other.begin;
    put(in_order ? other : one, in_order ? text : second);
    put(in_order ? one : other, in_order ? second : text);
  }

  std::string text_;
  Random random_;
};

}  // namespace

std::string mutate_tokens(std::string_view text, std::uint64_t seed) {
  return Mutator(text, seed).mutate();
}

}  // namespace dovetail
