// Names in a trace: strings as numbers, since it names a few thousand things a million times, and what is part of one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cctype>
#include <cstdint>
#include <deque>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dovetail::imports {

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline std::string in_lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// Numbers strings in the order in which they are first seen.
class Names {
 public:
  std::int32_t number(std::string_view text) {
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    const auto next = static_cast<std::int32_t>(texts_.size());
    texts_.emplace_back(text);
    numbers_.emplace(texts_.back(), next);
    return next;
  }
  [[nodiscard]] std::string_view text(std::int32_t number) const {
    return texts_[static_cast<std::size_t>(number)];
  }
  std::vector<std::string> take() {
    numbers_.clear();
    return {std::make_move_iterator(texts_.begin()), std::make_move_iterator(texts_.end())};
  }

 private:
  std::deque<std::string> texts_;  // addresses stay
  std::unordered_map<std::string_view, std::int32_t> numbers_;
};

}  // namespace dovetail::imports
