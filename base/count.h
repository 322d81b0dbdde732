// A number of things in words: counted(1, "bucket") is "1 bucket", counted(2, "bucket") "2 buckets".
//
// For words whose plural ends in s alone.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dovetail {

inline std::string counted(std::int64_t count, std::string_view word) {
  return std::to_string(count) + " " + std::string(word) + (count == 1 ? "" : "s");
}
inline std::string counted(std::size_t count, std::string_view word) {
  return counted(static_cast<std::int64_t>(count), word);
}

}  // namespace dovetail
