// Asking the tool without starting it: the front door's function in a fork of the test.
//
//   const Ended ended = ask("explore --workload absent.json");
//   ended.code, ended.output                        // as run_tool() has them
//
// A start of the tool under the address sanitizer takes a tenth of a second, a fork some milliseconds.
// For what is about the process itself (its start, its own threads and ranks, a shell's redirections)
// run_tool() is the way; so it is where DOVETAIL_TOOL names another program to test.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "tests/cli/tool.h"

namespace dovetail::testing {

// `arguments` are words between blanks; with quotes and other signs of a shell they go to run_tool().
Ended ask(const std::string& arguments, const std::map<std::string, std::string>& environment = {});

}  // namespace dovetail::testing
