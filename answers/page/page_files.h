// The files of answers/page/page and the chart library, as they were when the tool was built (embed.cmake).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace dovetail::report {

extern const std::string_view kPage;     // page.html, with places to fill in
extern const std::string_view kStyle;    // style.css
extern const std::string_view kLibrary;  // answers/page/d3/d3.min.js
extern const std::string_view kScript;   // all of page/*.js, in the order of CMakeLists.txt

}  // namespace dovetail::report
