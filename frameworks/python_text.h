// Text in the files that are written: Python literals, and the comment with which each begins.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/framework.h"

namespace dovetail::frameworks {

// A Python string literal in double quotes, whatever the text holds; also a JSON string.
std::string python_quoted(std::string_view text);
std::string quoted_list(const std::vector<std::string>& texts);
std::string number_list(const std::vector<std::int64_t>& numbers);
// The shortest digits that Python reads back as the same double: 6.197647094726562.
std::string shortest(double value);
// Without ends of lines: a name from a file must not end the comment that it stands in.
std::string one_line(std::string text);
// "+1.4 %"; "+0.0 %" of nothing.
std::string percent_of(Duration more, Duration whole);
// A time as ms with three digits: "502.200 ms".
std::string in_ms(Duration time);

// The first lines of a file, each begun with `mark` and a space: what it is, where it comes from, what
// is predicted, what is lost, and the notes.
std::string head(const Writing& writing, const Export& result, std::string_view mark = "#");

}  // namespace dovetail::frameworks
