// The news that a rank is gone, as one rank sees it: the first message stays, and a descriptor
// becomes readable, so that every poll loop can watch for it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/launch/socket.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

namespace dovetail::exec::launch {

// How long a rank waits once something went wrong.
struct Graces {
  // For the cause to become known: a connection often breaks before the news of why arrives.
  Duration news = std::chrono::milliseconds(500);
  // For a process to end by itself after a failure; then its monitor ends it.
  Duration end = std::chrono::seconds(4);
  // The same after SIGTERM: first for its reason, then for the end. mpirun sends SIGKILL after 1 s.
  Duration sigterm_news = std::chrono::milliseconds(400);
  Duration sigterm_end = std::chrono::milliseconds(900);
};

class Failure {
 public:
  Failure();

  // Only the first call counts; says whether this was it.
  bool raise(const std::string& message);
  [[nodiscard]] bool raised() const;
  // "rank 1 died (its connection closed)", or "" as long as nothing happened.
  [[nodiscard]] std::string message() const;
  // Waits for the news at most so long; returns message().
  std::string await(Duration patience) const;
  // Readable from the first raise on, for good.
  [[nodiscard]] int fd() const { return event_.get(); }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::string message_;
  Descriptor event_;
};

}  // namespace dovetail::exec::launch
