// Reads a version of PyTorch, and tells what DistributedDataParallel of that version does with its
// first bucket.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/torch_version.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <system_error>

namespace dovetail::schedule {

namespace {

// A number at the front of the text, which is taken from it.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.empty() || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take_point(std::string_view& text) {
  if (text.empty() || text.front() != '.') return false;
  text.remove_prefix(1);
  return true;
}

// "a0", "rc1", ".dev20261001": what torch.__version__ has behind its numbers, but for "+cu130", as a plus begins another
// policy.
bool is_build(std::string_view text) {
  constexpr std::array<std::string_view, 5> kBegin = {"a", "b", "rc", ".dev", ".post"};
  const auto begins = [&](std::string_view front) { return text.starts_with(front); };
  return text.empty() || (std::ranges::any_of(kBegin, begins) &&
                          text.find_first_of("=,: ") == std::string_view::npos);
}

}  // namespace

TorchVersion torch_version(std::string_view text) {
  constexpr int kLastOf1 = 13;
  std::string_view rest = text;
  const std::optional<int> major = take_number(rest);
  const bool has_minor = take_point(rest);
  const std::optional<int> minor = has_minor ? take_number(rest) : std::nullopt;
  const bool has_patch = take_point(rest) && take_number(rest).has_value();
  // ".dev" may follow the minor version at once.
  if (!has_patch && minor && rest.data() != text.data() && rest.data()[-1] == '.') {
    rest = text.substr(text.size() - rest.size() - 1);
  }
  if (!major || !minor || !is_build(rest)) {
    const bool has_option = text.find('=') != std::string_view::npos;
    return {.problem = "expected a version of PyTorch such as 1.13 or 2.14, found \"" +
                       std::string(text) + "\"" +
                       (has_option ? "; options are separated by a comma" : "")};
  }
  const int first = major.value_or(0);
  const int second = minor.value_or(0);
  const bool is_known = (first == 1 && second <= kLastOf1) || (first == 2 && second >= 6);
  if (!is_known) {
    return {.problem = "known are 1.0 to 1.13 and 2.6 and later of 2; what " + std::string(text) +
                       " does was not read"};
  }
  return {.first_follows_cap = first >= 2};
}

}  // namespace dovetail::schedule
