// What only the build knows. Defined in a file that the build writes (scripts/cmake/build_facts.cmake), so that a new
// commit compiles one file.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace dovetail::cli {

extern const char* const kCommit;     // "d81879d", "d81879d-dirty" or "unknown"
extern const char* const kBuildType;  // "Release", "Debug with address,undefined"

}  // namespace dovetail::cli
