// Which dovetail made a result: version, commit, build type and compiler.
//
//   tool_text()   "0.1.0 (commit d81879d, Release, g++ 12.2.0)"
//   tool_json()   {"name": "dovetail", "version": "0.1.0", "commit": "d81879d", "build": "Release",
//                  "compiler": "g++ 12.2.0"}
//
// The commit is that of the source tree when the tool was linked, with "-dirty" where files differed from
// it; "unknown" where it was built from no git checkout.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace dovetail::cli {

std::string tool_text();
nlohmann::ordered_json tool_json();
// "g++ 12.2.0"
std::string compiler();

}  // namespace dovetail::cli
