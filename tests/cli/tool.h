// Runs the dovetail tool as a person would, for tests of what it prints and returns.
//
// Variables of the person who runs the tests do not reach it: neither those that it reads itself
// (DOVETAIL_CUDA_MODULE, which tests set on purpose, apart), nor a launcher's, nor the language, nor the width of the terminal: lines are not cut. A rank that
// a busy machine holds up for long is not dead.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace dovetail::testing {

inline constexpr const char* kNoVariables =
    "unset DOVETAIL_DATA DOVETAIL_STORE RANK WORLD_SIZE LOCAL_RANK GROUP_WORLD_SIZE MASTER_ADDR "
    "MASTER_PORT TORCHELASTIC_RUN_ID OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE "
    "SLURM_PROCID SLURM_NTASKS; export LC_ALL=C COLUMNS=400 DOVETAIL_PROGRESS=off "
    "PYTHONDONTWRITEBYTECODE=1 "
    "DOVETAIL_HEARTBEAT_TIMEOUT=600s; ";

struct Ended {
  int code = -1;
  std::string output;  // standard output and error together
};

inline Ended run_command(const std::string& command) {
  FILE* pipe = ::popen((kNoVariables + command + " 2>&1").c_str(), "r");
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

// The first number behind these words of an output.
inline double number_after(const std::string& output, const std::string& words) {
  const std::size_t at = output.find(words);
  EXPECT_NE(at, std::string::npos) << words << " in " << output;
  return at == std::string::npos ? 0 : std::stod(output.substr(at + words.size()));
}

}  // namespace dovetail::testing
