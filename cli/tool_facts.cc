// Version, commit, build type and compiler of this tool, as text and as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/tool_facts.h"

#include "base/json.h"
#include "cli/build_facts.h"

namespace dovetail::cli {

std::string compiler() {
#if defined(__clang__)
  const std::string name = "clang ";
  const std::string version = __clang_version__;
  return name + version.substr(0, version.find(' '));
#else
  return std::string("g++ ") + __VERSION__;
#endif
}

std::string tool_text() {
  return std::string(DOVETAIL_VERSION " (commit ") + kCommit + ", " + kBuildType + ", " +
         compiler() + ")";
}

nlohmann::ordered_json tool_json() {
  return {{"name", "dovetail"},
          {"version", DOVETAIL_VERSION},
          {"commit", kCommit},
          {"build", kBuildType},
          {"compiler", compiler()}};
}

}  // namespace dovetail::cli
