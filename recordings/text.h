// Lines, words and numbers of log files, which other programs write for people.
//
// Everything here only looks: a word that is no number is no error, the caller decides.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::imports {

// A file and its text.
struct Source {
  std::string name;
  std::string_view text;
};

// Calls `visit(line, number)` for each line without its end, numbers from 1. "\r\n" and a last line
// without an end are fine.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    visit(line, ++number);
  }
}

inline bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Words between blanks and tabs.
std::vector<std::string_view> words_of(std::string_view line);

// The whole word as a number; absent where it is anything else, or out of range.
std::optional<std::int64_t> integer_of(std::string_view word);
// Finite only: "nan", "inf" and "N/A" are absent.
std::optional<double> number_of(std::string_view word);

// The number that follows the first `key` in the line, after blanks; absent where there is none.
// integer_after("# Rank  3 Pid 7", "Rank") is 3.
std::optional<std::int64_t> integer_after(std::string_view line, std::string_view key);

// The word that follows the first `key`, after blanks; "" where there is none.
std::string_view word_after(std::string_view line, std::string_view key);

// Without blanks and tabs at both ends.
std::string_view trimmed(std::string_view text);

// A word of a foreign file as a message or a note may show it: printable ASCII, at most 80 characters.
std::string printable(std::string_view text);

// "3 and 5", "1, 2 and 4".
std::string listed(const std::vector<std::string>& items);

}  // namespace dovetail::imports
