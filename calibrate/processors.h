// What only ranks on processors have, around the calibration of any backend: the unit kernel of which their ops consist
// where a workload holds recorded times, a reference load beside all of it, and the network's shield.
//
//   Calibration found = measure_processors({.exchange = ..., .make_backend = ..., .program = ..., ...});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <ctime>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/calibrate.h"

namespace dovetail::calibrate {

struct Processors {
  const exec::Exchange& exchange;
  const MakeBackend& make_backend;
  schedule::GemmWork unit_kernel;
  const schedule::Program& program;        // whose ops are measured, for all ranks
  std::vector<std::string> policies = {};  // measured for plans of these; empty: for all
  Options options = on_processors();       // but for variants and measures_further
};

// On the thread of each rank. All ranks get the same result. What is measured first is what later measurements are
// judged by: the unit kernel, then the shield.
Calibration measure_processors(const Processors& what);

// Processor time of one thread after another, as backends come and go: the thread says that it is there, any other asks.
class ThreadClock {
 public:
  void watch_this_thread();
  // Of the latest thread. REQUIRES: it runs.
  [[nodiscard]] Duration spent() const;

 private:
  std::atomic<clockid_t> clock_ = CLOCK_THREAD_CPUTIME_ID;
};

}  // namespace dovetail::calibrate
