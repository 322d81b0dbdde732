// Runs a subcommand of the tool in a fork of the test and reads what it prints, which is quicker
// than starting the tool and crashes like it.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/asked.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include "cli/front_door.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#define DOVETAIL_LEAKS
#endif
#endif

namespace dovetail::testing {
namespace {

// What tests print by calling a subcommand's function is not cut either.
[[maybe_unused]] const bool is_wide = ::setenv("COLUMNS", "400", 1) == 0;

#ifdef DOVETAIL_LEAKS
constexpr int kLeaked = 23;  // as the sanitizer has it
#endif

// What kNoVariables says to a shell.
void set_variables(const std::map<std::string, std::string>& environment) {
  for (const char* const name :
       {"DOVETAIL_DATA", "DOVETAIL_STORE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_WORLD_SIZE",
        "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) {
    ::unsetenv(name);
  }
  ::setenv("LC_ALL", "C", 1);
  ::setenv("DOVETAIL_PROGRESS", "off", 1);
  ::setenv("COLUMNS", "400", 1);
  ::setenv("DOVETAIL_HEARTBEAT_TIMEOUT", "600s", 1);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
}

[[noreturn]] void answer_into(int pipe, const std::string& arguments) {
  ::dup2(pipe, STDOUT_FILENO);
  ::dup2(pipe, STDERR_FILENO);
  std::vector<std::string> words = {"dovetail"};
  std::istringstream all(arguments);
  for (std::string word; all >> word;) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int code = cli::answer(static_cast<int>(words.size()), argv.data());
  std::cout.flush();
  std::fflush(nullptr);
#ifdef DOVETAIL_LEAKS
  // As at the end of a program, which this is not.
  if (__lsan_do_recoverable_leak_check() != 0) ::_exit(kLeaked);
#endif
  ::_exit(code);
}

}  // namespace

Ended ask(const std::string& arguments, const std::map<std::string, std::string>& environment) {
  const bool is_for_a_shell = arguments.find_first_of("'\"\\$`<>|&;()*?~#") != std::string::npos;
  if (is_for_a_shell || std::getenv("DOVETAIL_TOOL") != nullptr) {
    std::string variables;
    for (const auto& [name, value] : environment) variables += name + "=" + value + " ";
    return run_command(variables + tool() + " " + arguments);
  }
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return {-1, "no pipe"};
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    set_variables(environment);
    answer_into(ends[1], arguments);
  }
  ::close(ends[1]);
  Ended ended;
  std::array<char, 4096> block{};
  for (ssize_t size = 0; (size = ::read(ends[0], block.data(), block.size())) > 0;) {
    ended.output.append(block.data(), static_cast<std::size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

}  // namespace dovetail::testing
