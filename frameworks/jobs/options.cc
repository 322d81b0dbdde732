// Looks options up by name, and tells what is left.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "base/error.h"

namespace dovetail::frameworks {
namespace {

bool is_like(std::string_view name, std::string_view pattern) {
  if (!pattern.ends_with('*')) return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

bool is_one_of(std::string_view value, std::string_view list) {
  const std::string small = in_small_letters(value);
  while (!list.empty()) {
    const std::size_t bar = std::min(list.find('|'), list.size());
    if (small == list.substr(0, bar)) return true;
    list.remove_prefix(std::min(bar + 1, list.size()));
  }
  return false;
}

}  // namespace

void replace(std::vector<OptionText>& options, std::vector<OptionText> by) {
  for (const OptionText& one : by) {
    std::erase_if(options, [&one](const OptionText& old) { return old.name == one.name; });
  }
  std::ranges::move(by, std::back_inserter(options));
}

const std::string* Options::find(std::string_view name) {
  const std::string* last = nullptr;
  for (OptionText& option : options_) {
    if (option.name != name) continue;
    option.heeded = true;
    last = &option.value;
  }
  return last;
}

bool Options::is_there(std::string_view name) const {
  return std::ranges::find(options_, name, &OptionText::name) != options_.end();
}

std::int64_t Options::whole(std::string_view name, std::int64_t otherwise, std::int64_t least,
                            std::int64_t most) {
  const std::string* const value = find(name);
  if (value == nullptr) return otherwise;
  double number = 0;
  const char* const end = value->data() + value->size();
  const auto [at, error] = std::from_chars(value->data(), end, number);
  const bool is_number = error == std::errc() && at == end &&
                         number >= static_cast<double>(least) &&
                         number <= static_cast<double>(most);
  if (!is_number || number != static_cast<double>(static_cast<std::int64_t>(number))) {
    fail(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return static_cast<std::int64_t>(number);
}

bool Options::flag(std::string_view name, bool otherwise) {
  const std::string* const value = find(name);
  if (value == nullptr) return otherwise;
  if (!is_one_of(*value, "true|false")) fail(name, "true or false");
  return is_one_of(*value, "true");
}

std::string Options::text(std::string_view name, std::string_view otherwise) {
  const std::string* const value = find(name);
  return value == nullptr ? std::string(otherwise) : *value;
}

std::optional<std::size_t> Options::word_index(std::string_view name,
                                               std::span<const std::string_view> words) {
  const std::string* const value = find(name);
  if (value == nullptr) return std::nullopt;
  std::string expected;
  for (std::size_t w = 0; w < words.size(); ++w) {
    if (in_small_letters(words[w]) == in_small_letters(*value)) return w;
    expected += (w == 0 ? "" : w + 1 < words.size() ? ", " : " or ") + std::string(words[w]);
  }
  fail(name, expected);
}

void Options::fail(std::string_view name, const std::string& expected) {
  throw InputError(file_ + ": " + std::string(name) + ": expected " + expected + ", found \"" +
                   text(name, "") + "\"");
}

void Options::refuse(std::span<const NotModelled> those) {
  for (OptionText& option : options_) {
    for (const NotModelled& one : those) {
      if (!is_like(option.name, one.name)) continue;
      option.heeded = true;
      if (!is_one_of(option.value, one.without)) {
        throw InputError(file_ + ": " + option.name + ": " + std::string(one.why));
      }
    }
  }
}

std::vector<std::string> Options::notes(std::span<const NotModelled> not_modelled,
                                        std::span<const std::string_view> harmless) const {
  std::vector<std::string> notes;
  std::set<std::string_view> told;
  for (const OptionText& option : options_) {
    const std::string_view name = option.name;
    if (!told.insert(name).second) continue;
    const auto last = std::find_if(options_.rbegin(), options_.rend(),
                                   [name](const OptionText& other) { return other.name == name; });
    const std::string& value = last->value;
    const auto is_of = [name](const NotModelled& one) { return is_like(name, one.name); };
    const auto is_that = [name](std::string_view pattern) { return is_like(name, pattern); };
    const auto known = std::ranges::find_if(not_modelled, is_of);
    if (option.heeded) {
      if (value == option.value) continue;
      notes.push_back(option.name + " is there as " + option.value + " and as " + value +
                      "; the last counts");
    } else if (known != not_modelled.end()) {
      if (is_one_of(value, known->without)) continue;
      notes.push_back(option.name + (value.empty() ? "" : " " + value) + ": " +
                      std::string(known->why));
    } else if (std::ranges::none_of(harmless, is_that)) {
      notes.push_back(option.name + " is not known here and was not heeded");
    }
  }
  return notes;
}

}  // namespace dovetail::frameworks
