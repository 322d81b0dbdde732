// Numbers for people: fixed(12.3456, 2) is "12.35", milliseconds(Duration(12'346'000)) is "12.346 ms".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>

#include "base/units.h"

namespace dovetail {

// So many digits after the point; `plus` "+" writes the sign of positive numbers too.
inline std::string fixed(double value, int digits, const char* plus = "") {
  std::array<char, 400> text{};
  const char* const format = *plus == '+' ? "%+.*f" : "%.*f";
  const int size = std::snprintf(text.data(), text.size(), format, digits, value);
  return std::string(text.data(), static_cast<std::size_t>(size));
}

inline std::string milliseconds(Duration time, int digits = 3) {
  return fixed(to_us(time) / 1e3, digits) + " ms";
}

}  // namespace dovetail
