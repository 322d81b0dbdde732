// JSON as programs write it that print it by hand: what base/json_reader.h refuses, and rightly so in our own files.
//
//   JsonFile file(name, strict_json(text));         // {"busbw": inf, "us": "61",} is {"busbw": null, "us": "61"}
//   loose_integer(file.root().at("us"), 0, 1000)    // 61
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json_reader.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dovetail::imports {

// Without a byte order mark and commas before a closing bracket, and null for what printf, Python and C++ make of
// a number that is none: nan, -nan, inf, NaN, Infinity, -Infinity, nan(ind). Lines stay as they are.
std::string strict_json(std::string_view text);

// Also in quotes, "61.5". Else as JsonValue's.
double loose_number(const JsonValue& value, double low, double high);
// Also in quotes and as 61.0.
std::int64_t loose_integer(const JsonValue& value, std::int64_t low, std::int64_t high);

}  // namespace dovetail::imports
