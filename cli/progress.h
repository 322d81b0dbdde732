// Long work shows itself on standard error: what is done, how far, how long still.
//
//   Progress progress("explore", "candidate", 46, options.yes);
//   for (...) { progress.begin("torch-ddp"); ...; if (!progress.done()) break; }
//
//   explore: torch-ddp: 17 of 46 candidates, about 12 s left          on a terminal, one line that changes
//   explore: torch-ddp (17 of 46 candidates, 31 s so far)             elsewhere, a line in 10 s
//
// Work that ends within a second says nothing. What would take over an hour is refused without --yes, as soon
// as that can be told. Ctrl-C ends the work and keeps what was found (signals.h). DOVETAIL_PROGRESS=off keeps standard error silent.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/units.h"

namespace dovetail::cli {

// "40 s", "12 min", "3.4 h"
std::string about(Duration time);

// Refuses what takes hours: throws InputError "explore: about 3.4 h ...; --yes ...".
void require_patience(const std::string& command, Duration expected, bool yes);

// Whether standard error is to be written to.
bool shows_progress();

class Progress {
 public:
  // `unit`: what is counted, in the singular.
  Progress(std::string command, std::string unit, std::int64_t total, bool yes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // A phase begins.
  void begin(const std::string& phase);
  // One more item is done; false: Ctrl-C asked to stop. Throws as require_patience does.
  bool done();
  [[nodiscard]] bool is_interrupted() const;
  [[nodiscard]] std::int64_t items() const { return items_; }

 private:
  void show();
  [[nodiscard]] Duration elapsed() const;
  [[nodiscard]] Duration left() const;

  std::string command_, unit_, phase_;
  std::int64_t total_ = 0;
  std::int64_t items_ = 0;
  bool yes_ = false;
  bool is_terminal_ = false;
  bool has_line_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace dovetail::cli
