// Runs the dovetail tool as a person would, for tests of what it prints and returns.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace dovetail::testing {

struct Ended {
  int code = -1;
  std::string output;  // standard output and error together
};

inline Ended run_command(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  Ended ended;
  std::array<char, 4096> block{};
  while (const std::size_t size = std::fread(block.data(), 1, block.size(), pipe)) {
    ended.output.append(block.data(), size);
  }
  const int status = ::pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

// The tool under test: that of this build, or the one that the environment names.
inline std::string tool() {
  const char* named = std::getenv("DOVETAIL_TOOL");
  return named == nullptr ? DOVETAIL_TOOL : named;
}

inline Ended run_tool(const std::string& arguments) {
  return run_command(tool() + " " + arguments);
}

}  // namespace dovetail::testing
