// Finds a number that is followed by kB, KB, MB or GB and by nothing that makes another word of it.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/units_note.h"

#include <array>
#include <cctype>

namespace dovetail::frameworks {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Where the number that ends before `at` begins; `at` where there is none.
std::size_t number_before(std::string_view text, std::size_t at) {
  std::size_t begin = at;
  while (begin > 0 && (is_digit(text[begin - 1]) || text[begin - 1] == '.')) --begin;
  return begin;
}

}  // namespace

std::vector<std::string> notes_on_units(std::string_view typed) {
  constexpr std::array<std::string_view, 4> kUnits = {"kB", "KB", "MB", "GB"};
  for (const std::string_view unit : kUnits) {
    for (std::size_t at = typed.find(unit); at != std::string_view::npos;
         at = typed.find(unit, at + 1)) {
      const std::size_t begin = number_before(typed, at);
      const std::size_t end = at + unit.size();
      const bool goes_on =
          end < typed.size() &&
          (std::isalnum(static_cast<unsigned char>(typed[end])) != 0 || typed[end] == '/');
      if (begin == at || goes_on) continue;
      const std::string number(typed.substr(begin, at - begin));
      const std::string prefix(unit == "kB" ? "K" : unit.substr(0, 1));
      return {number + std::string(unit) + " is taken as powers of 1000; frameworks count " +
              prefix + "iB (bucket_cap_mb=25 is 25MiB): write " + number + prefix +
              "iB for theirs"};
    }
  }
  return {};
}

}  // namespace dovetail::frameworks
