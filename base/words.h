// The words of an enum, written once beside it: what prints, reads, lists and checks it asks this table.
//
//   enum class BucketMode { View, Copy };
//   constexpr auto words_of(BucketMode) { return words("view", "copy"); }
//   using dovetail::to_string;                 // once per namespace, so that to_string(mode) is found
//
//   to_string(BucketMode::Copy) == "copy"
//   word_to<BucketMode>("view") == BucketMode::View       no such word: nothing
//   kAllOf<BucketMode> == {View, Copy}                       for loops
//   word_list<BucketMode>() == "view or copy"             for messages
//   object.one_of<BucketMode>("mode")                     JSON (base/json_reader.h)
//
// REQUIRES: enumerators count up from 0 and the words stand in their order. A table that lacks the last
// enumerator, or has a word too many, does not compile.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace dovetail {

template <class... Text>
constexpr std::array<std::string_view, sizeof...(Text)> words(Text... text) {
  return {std::string_view(text)...};
}

template <class Enum>
concept Worded = std::is_enum_v<Enum> && requires(Enum value) {
  words_of(value).size();
};

namespace internal {

// Compilers spell a value without an enumerator as a cast: "(Mode)2".
template <auto kValue>
constexpr bool is_enumerator() {
  const std::string_view name = __PRETTY_FUNCTION__;
  const std::size_t at = name.rfind("kValue = ");
  return at == std::string_view::npos || name[at + 9] != '(';
}

}  // namespace internal

template <Worded Enum>
inline constexpr std::size_t kWordCount = words_of(Enum{}).size();

// All enumerators, in order.
template <Worded Enum>
inline constexpr std::array<Enum, kWordCount<Enum>> kAllOf = [] {
  std::array<Enum, kWordCount<Enum>> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Enum>(i);
  return values;
}();

template <Worded Enum>
constexpr std::string_view to_string(Enum value) {
  static_assert(internal::is_enumerator<static_cast<Enum>(kWordCount<Enum> - 1)>(),
                "more words than enumerators");
  static_assert(!internal::is_enumerator<static_cast<Enum>(kWordCount<Enum>)>(),
                "fewer words than enumerators");
  const auto index = static_cast<std::size_t>(value);
  return index < kWordCount<Enum> ? words_of(value)[index] : "?";
}

// The enumerator of the word; nothing: there is none.
template <Worded Enum>
constexpr std::optional<Enum> word_to(std::string_view word) {
  for (const Enum value : kAllOf<Enum>) {
    if (to_string(value) == word) return value;
  }
  return std::nullopt;
}

// "a, b or c".
template <Worded Enum>
std::string word_list(std::span<const Enum> values = kAllOf<Enum>) {
  std::string list;
  for (std::size_t i = 0; i < values.size(); ++i) {
    list += i == 0 ? "" : i + 1 < values.size() ? ", " : " or ";
    list += to_string(values[i]);
  }
  return list;
}

}  // namespace dovetail
