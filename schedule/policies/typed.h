// The values of a policy's options as they are typed: words, sizes and numbers, with the errors that name
// the option.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/attempt.h"
#include "base/error.h"
#include "base/units.h"
#include "base/words.h"
#include "schedule/policies/policies.h"

namespace dovetail::schedule::typed {

// One option as it was typed.
struct Typed {
  std::string_view policy;  // the whole text, for messages
  std::string_view key, value;
};

[[noreturn]] inline void fail(std::string_view policy, const std::string& message) {
  throw InputError("policy \"" + std::string(policy) + "\": " + message);
}

[[noreturn]] inline void fail(const Typed& typed, const std::string& message) {
  fail(typed.policy, "option " + std::string(typed.key) + ": " + message);
}

template <Worded Enum>
Enum word(const Typed& typed, std::span<const Enum> values = kAllOf<Enum>) {
  for (const Enum value : values) {
    if (typed.value == to_string(value)) return value;
  }
  fail(typed, "expected " + word_list(values) + ", found \"" + std::string(typed.value) + "\"");
}

// `below_one`: what else the policy says of 0.
inline Bytes size(const Typed& typed, std::string_view below_one = "") {
  const auto bytes = attempt([&] { return parse_bytes(typed.value); });
  if (!bytes) fail(typed, bytes.error);
  if (*bytes.value < Bytes(1)) fail(typed, "must be at least 1B" + std::string(below_one));
  return *bytes.value;
}

inline std::int64_t number(const Typed& typed, std::int64_t most, std::int64_t least = 1) {
  std::int64_t value = 0;
  const char* const end = typed.value.data() + typed.value.size();
  const auto [at, error] = std::from_chars(typed.value.data(), end, value);
  if (error != std::errc() || at != end || value < least || value > most) {
    fail(typed, "expected a whole number from " + std::to_string(least) + " to " +
                    std::to_string(most) + ", found \"" + std::string(typed.value) + "\"");
  }
  return value;
}

inline std::int32_t small_number(const Typed& typed, std::int32_t most) {
  return static_cast<std::int32_t>(number(typed, most));
}

// Empty for 0.
inline std::string positive(std::int64_t number) {
  return number > 0 ? std::to_string(number) : std::string();
}

// A size that parse_bytes reads back exactly.
inline std::string exact_size(Bytes bytes) {
  constexpr std::array<std::pair<std::string_view, int>, 3> kUnits = {
      {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}};
  for (const auto& [unit, shift] : kUnits) {
    if (bytes.count() % (std::int64_t{1} << shift) == 0) {
      return std::to_string(bytes.count() >> shift) + std::string(unit);
    }
  }
  return std::to_string(bytes.count()) + "B";
}

// "25", "0.5", "22.627417": MiB, with as many digits as give these bytes where the product with 2^20 is cut to a whole number.
inline std::string in_mb(Bytes bytes) {
  constexpr double kMib = 1 << 20;
  const double value = static_cast<double>(bytes.count()) / kMib;
  std::array<char, 40> digits{};
  for (int precision = 6;; ++precision) {
    const auto [end, status] = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                             std::chars_format::general, precision);
    double read = 0;
    std::from_chars(digits.data(), end, read);
    const bool is_exact = static_cast<std::int64_t>(read * kMib) == bytes.count();
    if (is_exact || precision == 17) return {digits.data(), end};
  }
}

}  // namespace dovetail::schedule::typed
