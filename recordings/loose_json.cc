// Goes through the text once, outside of strings.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/loose_json.h"

#include "recordings/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>

namespace dovetail::imports {
namespace {

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("+-.#()_").find(c) != std::string_view::npos;
}

// "-nan(ind)", "inf", "Infinity", "1.#INF": a number that is none.
bool is_no_number(std::string_view word) {
  if (word.starts_with('-') || word.starts_with('+')) word.remove_prefix(1);
  std::string small(word);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::array<std::string_view, 6> kWords = {"nan",    "inf",    "infinity",
                                                      "1.#inf", "1.#ind", "1.#qnan"};
  return std::ranges::find(kWords, small) != kWords.end() ||
         (small.starts_with("nan(") && small.ends_with(')'));
}

// Behind the string that begins at `at`.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

}  // namespace

std::string strict_json(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  std::string result;
  result.reserve(text.size());
  std::size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    std::size_t end = at + 1;
    if (c == '"') {
      end = end_of_string(text, at);
    } else if (in_word(c)) {
      while (end < text.size() && in_word(text[end])) ++end;
    } else if (c == ',') {
      const std::size_t next = text.find_first_not_of(" \t\r\n", end);
      const bool is_last =
          next != std::string_view::npos && (text[next] == ']' || text[next] == '}');
      if (is_last) {
        ++at;
        continue;
      }
    }
    const std::string_view piece = text.substr(at, end - at);
    result += in_word(c) && is_no_number(piece) ? std::string_view("null") : piece;
    at = end;
  }
  return result;
}

double loose_number(const JsonValue& value, double low, double high) {
  if (!value.is_string()) return value.number(low, high);
  const std::optional<double> number = number_of(trimmed(value.string()));
  if (!number || *number < low || *number > high) value.fail("expected a number in its quotes");
  return *number;
}

std::int64_t loose_integer(const JsonValue& value, std::int64_t low, std::int64_t high) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value.is_string()) {
    const std::string text = value.string();
    const std::optional<std::int64_t> number = integer_of(trimmed(text));
    if (!number || *number < low || *number > high) value.fail("expected an integer in its quotes");
    return *number;
  }
  if (!value.is_number()) return value.integer(low, high);
  const double number = value.number();
  const bool is_whole = std::abs(number) < kExact && std::trunc(number) == number;
  if (!is_whole || number < static_cast<double>(low) || number > static_cast<double>(high)) {
    return value.integer(low, high);
  }
  return static_cast<std::int64_t>(number);
}

}  // namespace dovetail::imports
