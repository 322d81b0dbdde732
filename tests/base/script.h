// What a script of scripts/ prints, and how it ends.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace dovetail::testing {

struct Said {
  std::string text;      // its standard output
  int exit_status = -1;  // -1 where a signal ended it
};

// SCRIPT: a Python script of scripts/ and its arguments, as a shell has them, "check_rules.py --root DIR".
inline Said said_by(const std::string& script) {
  const std::string command =
      std::string("python3 -I ") + DOVETAIL_SOURCE_DIR + "/scripts/" + script;
  FILE* pipe = ::popen(command.c_str(), "r");
  DOVETAIL_CHECK(pipe != nullptr) << command;
  Said said;
  std::array<char, 4096> block{};
  while (const std::size_t size = std::fread(block.data(), 1, block.size(), pipe)) {
    said.text.append(block.data(), size);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) said.exit_status = WEXITSTATUS(status);
  return said;
}

}  // namespace dovetail::testing
