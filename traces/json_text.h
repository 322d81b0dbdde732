// JSON by hand: appends numbers and strings to one growing text.
//
// For the two files that can hold 100 000 spans (trace_json.h, perfetto.h): std::to_chars into a
// string takes 0.1 to 0.4 us a span, building and dumping a document of values over 2 us.
//
//   append_us(text, Duration(12345))     12.345       exact: a nanosecond is the last digit
//   append_json_string(text, "a\"b")     "a\"b"
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace dovetail::traces {

void append_integer(std::string& text, std::int64_t value);

// Microseconds with exactly three decimals.
void append_us(std::string& text, Duration duration);

// With three decimals. REQUIRES: finite.
void append_decimal(std::string& text, double value);

// With quotes. Control characters are escaped; a byte that is no valid UTF-8 becomes U+FFFD, so the
// result is always valid JSON.
void append_json_string(std::string& text, std::string_view value);

}  // namespace dovetail::traces
