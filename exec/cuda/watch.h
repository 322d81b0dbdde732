// Waiting for a device or a peer, never without a deadline.
//
// Whoever waits polls: is it done; has a library reported an error; has another rank failed; is the
// deadline over. In the last three cases the other ranks are told, the communicators aborted, and a
// DeviceError goes up that names rank and command:
//
//   rank 0: all-reduce of bucket 3 did not end within 60000 ms
//   rank 2: NCCL: remote process exited or there was a network error during all-reduce of bucket 3
//
// Calls that block inside a library run under the same watch: run() moves them to a thread of their
// own (connecting a communicator), which is left behind when the watch gives up; call() keeps those
// that must stay on this thread (enqueueing a collective) under the eyes of another (call_guard.h).
// Either way the process is about to end.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/cuda/call_guard.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace dovetail::exec::cuda {

struct WatchOptions {
  Rank rank = {};
  Duration deadline = std::chrono::seconds(60);
  Duration grace = std::chrono::seconds(3);               // for a call to return once it is aborted
  std::function<std::string()> peer_failure{};            // "" while all is well; may be empty
  std::function<void(const std::string&)> tell_others{};  // may be empty; from any thread
  DeadlineClock clock{};
};

// Spin: answers within a microsecond. Sleep: leaves the core to NCCL's threads.
enum class Pace { Spin, Sleep };

class Watch {
 public:
  explicit Watch(WatchOptions options) : options_(std::move(options)) {}

  // What libraries report ("" if nothing), and how to stop them; set once they exist.
  void set_library(std::function<std::string()> error, std::function<void()> abort);

  // Returns once is_done() holds. `doing` names what is waited for, when that is needed.
  void wait(const std::function<bool()>& is_done, const std::function<std::string()>& doing,
            Pace pace);
  // Runs `work` on another thread and waits for its end; its exception is thrown here, a
  // DeviceError with rank and `doing` in front.
  void run(std::function<void()> work, const std::string& doing);
  // Runs `work` on this thread; should it hang, the libraries are aborted from another one.
  template <class Work>
  void call(const GuardedCall& what, const Work& work) {
    guard().run(what, work);
  }

  // Ends everything.
  [[noreturn]] void fail(const std::string& message);

 private:
  bool is_over(const std::function<bool()>& is_done, const std::function<std::string()>& doing);
  void look(const std::function<std::string()>& doing);
  CallGuard& guard();

  WatchOptions options_;
  std::function<std::string()> library_error_;
  std::function<void()> abort_;
  std::unique_ptr<CallGuard> guard_;  // from the first call on
};

}  // namespace dovetail::exec::cuda
