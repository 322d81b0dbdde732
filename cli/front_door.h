// The tool as a function, for main and for tests that ask it many questions.
//
//   std::vector<std::string> words = {"dovetail", "show", "clusters"}; ...
//   int code = answer(argc, argv);     // prints as the tool does, to standard output and error
//
// Exit codes: cli/front_door.cc. Where the machine failed the process is ended with 3, as a thread may
// hang in a library.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace dovetail::cli {

// REQUIRES: argv[argc] is null, as main has it.
int answer(int argc, char** argv);

// The same within another program (python/core.cc): the words behind the program's name, and where what it prints goes. Several
// threads may ask at once. The exit code. Throws InputError, also for words that cannot be parsed, DeviceError, and CheckError with
// the words that led to it.
int answer(const std::vector<std::string>& words, std::ostream& out);

}  // namespace dovetail::cli
