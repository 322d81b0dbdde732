// What a calibration measures, and how. The defaults are those of a GPU; on_processors() has those of ranks whose
// host is their compute stream.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/clock.h"
#include "models/clusters/cluster.h"
#include "schedule/scheduled_program.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

namespace dovetail::calibrate {

// What issuing commands costs the host: time per command, or nothing where a recorded step is replayed (a graph).
enum class HostWork { PerCommand, Replayed };

struct Options {
  // Cpu: ops run on the host thread itself, so they are told apart by name (each finds the caches as the op before
  // left them), issuing costs compute time, and a collective takes processor time from the ops beside it.
  models::BackendKind backend = models::BackendKind::Cuda;
  HostWork host = HostWork::PerCommand;
  std::int32_t max_ctas = 0;  // thread blocks per collective; 0: the library's choice
  std::int32_t steps = 10;    // of every measurement, after `warmup` others
  std::int32_t warmup = 2;
  Duration pause{};  // before each step: threads go to sleep, a shaped link has its credit back
  // Rewritten forms of the workload, whose passes are measured too.
  std::vector<schedule::ScheduledProgram> variants{};
  std::int32_t variant_steps = 6;
  // All-reduces of all ranks, by size. At most so many steps of each, and no more than the budget has room for.
  Bytes smallest = kib(4);
  Bytes largest = mib(256);
  std::int64_t growth = 2;  // from one size to the next
  std::int32_t transfer_steps = 10;
  Duration budget = std::chrono::seconds(15);
  // Everything else that travels (wanted_series).
  bool measures_further = true;
  Bytes further_smallest = kib(4);
  Bytes further_largest = mib(64);
  Duration further_budget = std::chrono::seconds(15);  // for all series together
  bool only_halves =
      false;  // of these, halves of all-reduces of all ranks: a library has nothing else
  Bytes queue = mib(2048);       // most in one queue of transfers, which has two at least
  Bytes head_start = mib(1024);  // of memory work, while the host enqueues a queue of transfers
  Bytes copies_largest = mib(64);
  // Computing beside a queue of collectives.
  Bytes contention_bytes = mib(16);                           // most, of each
  Duration contention_time = std::chrono::milliseconds(100);  // to compute beside the queue, about
  // Beside one step; where it ends before the ops do, only the first of them count.
  std::int64_t longest_queue = 256;
  Bytes contention_memory = mib(4096);
  // Processor time so far of the thread that carries collectives out; may be empty.
  std::function<Duration()> transfer_cpu{};
  // The clock of the host's calls and of the budgets.
  std::function<std::int64_t()> now = exec::now_ns;
  // How the host rests until a device has done what was issued.
  std::function<void(Duration)> rest = [](Duration time) { std::this_thread::sleep_for(time); };
  std::function<void(std::string_view)> progress{};  // told on rank 0; may be empty
};

// Of ranks on processors, which have one core or a few each.
Options on_processors();

}  // namespace dovetail::calibrate
