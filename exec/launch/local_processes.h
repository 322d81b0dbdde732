// Ranks as processes of this machine: starts a command once per rank, under a deadline.
//
//   ProcessesResult ended = run_local_processes(
//       {.command = {"/proc/self/exe", "selftest", "--as-rank", "cpu"}, .ranks = 2});
//
// Each process gets RANK, WORLD_SIZE, LOCAL_RANK, DOVETAIL_STORE and TORCHELASTIC_RUN_ID, the name of
// this job (world.h), the variables in `environment`, and those that `of_rank` adds for its rank;
// variables of other launchers are kept from it. Standard output of rank 0 and standard error of all
// are collected. When one fails, the others get `grace` to find out by themselves; when the deadline
// passes, those still running are killed. Only processes that this call started are ever signalled.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace dovetail::exec::launch {

using Variables = std::map<std::string, std::string>;

struct ProcessesOptions {
  std::vector<std::string> command;  // a path, then arguments
  std::int32_t ranks = 2;
  Duration deadline = std::chrono::seconds(60);
  Duration grace = std::chrono::seconds(8);  // for the others once one has failed
  Variables environment{};
  std::function<Variables(std::int32_t rank)> of_rank{};  // may be empty
};

struct ProcessesResult {
  bool in_time = true;          // false: something was killed
  std::vector<int> exit_codes;  // by rank; 128 + signal for those that a signal ended
  std::string output;           // of rank 0
  std::string errors;           // of all ranks, as they came
  [[nodiscard]] bool succeeded() const;
};

// Throws DeviceError when the processes cannot be started.
ProcessesResult run_local_processes(const ProcessesOptions& options);

}  // namespace dovetail::exec::launch
