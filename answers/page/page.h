// A report as one HTML file that opens from disk: style, script, chart library and figures are all in it, and
// its content security policy lets it load nothing.
//
// What names and notes say never becomes markup: the figures stand in the file as JSON in which no "<"
// is left, and the script puts texts into the page as texts.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace dovetail::report {

// REQUIRES: `report` is what to_json (report.h) gave.
std::string page(const nlohmann::ordered_json& report);

}  // namespace dovetail::report
