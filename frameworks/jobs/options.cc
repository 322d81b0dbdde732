// Looks options up by name, and tells what is left.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>

#include "base/error.h"

namespace dovetail::frameworks {
namespace {

std::string small_letters_of(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
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

bool Options::is(std::string_view name, std::string_view words) const {
  return std::ranges::any_of(options_, [&](const OptionText& option) {
    return option.name == name && is_one_of(option.value, words);
  });
}

double Options::number(std::string_view name, double otherwise) {
  const std::string* const value = find(name);
  if (value == nullptr) return otherwise;
  double number = 0;
  const char* const end = value->data() + value->size();
  const auto [at, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || at != end || !std::isfinite(number)) fail(name, "a number");
  return number;
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
  if (!is_one_of(*value, kTrue) && !is_one_of(*value, kFalse)) fail(name, "true or false");
  return is_one_of(*value, kTrue);
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
    if (small_letters_of(words[w]) == small_letters_of(*value)) return w;
    expected += (w == 0 ? "" : w + 1 < words.size() ? ", " : " or ") + std::string(words[w]);
  }
  fail(name, expected);
}

void Options::fail(std::string_view name, const std::string& expected) {
  throw InputError(file_ + ": " + std::string(name) + ": expected " + expected + ", found \"" +
                   text(name, "") + "\"");
}

void Options::set(std::string_view name, const std::string& value) {
  for (OptionText& option : options_) {
    if (option.name == name) option.value = value;
  }
}

void Options::drop(std::string_view name) {
  std::erase_if(options_, [name](const OptionText& option) { return option.name == name; });
}

void Options::rename(const KeyTable& keys) {
  for (OptionText& option : options_) {
    const Key key = keys.find(option.name);
    if (key.kind == Key::Class::Renamed) option.name = key.why;
  }
}

void Options::set_or_add(std::string_view name, const std::string& value) {
  if (is_there(name)) return set(name, value);
  options_.push_back({.name = std::string(name), .value = value});
}

bool Options::has_section(std::string_view name) const {
  const std::string front = std::string(name) + ".";
  return std::ranges::any_of(
      options_, [&](const OptionText& option) { return option.name.starts_with(front); });
}

std::vector<OptionText> Options::take_section(std::string_view name) {
  const std::string front = std::string(name) + ".";
  std::vector<OptionText> section;
  for (const OptionText& option : options_) {
    if (option.name.starts_with(front))
      section.push_back({.name = option.name.substr(front.size()), .value = option.value});
  }
  std::erase_if(options_,
                [&front](const OptionText& option) { return option.name.starts_with(front); });
  return section;
}

void Options::add_section(std::string_view name, std::vector<OptionText> options) {
  for (OptionText& option : options) {
    option.name.insert(0, std::string(name) + ".");
    options_.push_back(std::move(option));
  }
}

void Options::refuse(const KeyTable& keys) {
  for (OptionText& option : options_) {
    const Key key = keys.find(option.name);
    if (key.kind != Key::Class::Refused || key.is_idle(option.value)) continue;
    throw InputError(file_ + ": " + option.name + ": " + std::string(key.why));
  }
}

Options::Rest Options::rest(const KeyTable& keys, bool passes_unknown) const {
  Rest rest;
  std::set<std::string_view> told;
  std::vector<std::string> unknown;
  for (const OptionText& option : options_) {
    const std::string& name = option.name;
    if (!told.insert(name).second) continue;
    const auto last = std::find_if(options_.rbegin(), options_.rend(),
                                   [&name](const OptionText& other) { return other.name == name; });
    const std::string& value = last->value;
    const Key key = keys.find(name);
    if (option.heeded) {
      if (value == option.value) continue;
      rest.notes.push_back(name + " is there as " + option.value + " and as " + value +
                           "; the last counts");
    } else if (key.kind == Key::Class::Decides && !key.is_idle(value)) {
      rest.assumed.push_back({.option = name, .value = value, .counted = std::string(key.why)});
    } else if (key.kind == Key::Class::Passed) {
      rest.notes.push_back(name + ": " + std::string(key.why));
    } else if (key.kind == Key::Class::Unknown) {
      unknown.push_back(name);
      if (passes_unknown)
        rest.assumed.push_back({.option = name, .value = value, .counted = "not heeded"});
    }
  }
  if (!unknown.empty() && !passes_unknown) refuse_unknown(keys, unknown);
  return rest;
}

void Options::refuse_unknown(const KeyTable& keys, const std::vector<std::string>& names) const {
  const std::string near = keys.nearest(names.front());
  const std::string others =
      names.size() == 1 ? "" : ", and " + std::to_string(names.size() - 1) + " more";
  throw InputError(file_ + ": " + names.front() + others + ": not known to " +
                   std::string(keys.owner()) +
                   (near.empty() ? "" : "; did you mean " + near + "?") +
                   " (unknown=ignored behind it passes over what is your own)");
}

}  // namespace dovetail::frameworks
