// Splits log files into lines, words and numbers, tolerant of line ends and of what launchers put
// before a line.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/text.h"

#include <charconv>
#include <cmath>
#include <system_error>

namespace dovetail::imports {
namespace {

template <class T>
std::optional<T> whole(std::string_view word) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (at < line.size()) {
    if (is_blank(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && !is_blank(line[end])) ++end;
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::optional<std::int64_t> integer_of(std::string_view word) { return whole<std::int64_t>(word); }

std::optional<double> number_of(std::string_view word) {
  const std::optional<double> value = whole<double>(word);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::string_view word_after(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + key.size());
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  std::size_t end = 0;
  while (end < line.size() && !is_blank(line[end])) ++end;
  return line.substr(0, end);
}

std::optional<std::int64_t> integer_after(std::string_view line, std::string_view key) {
  return integer_of(word_after(line, key));
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string result;
  for (const char c : text.substr(0, kMost)) result += c >= 0x20 && c < 0x7f ? c : '?';
  return text.size() > kMost ? result + "..." : result;
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

}  // namespace dovetail::imports
