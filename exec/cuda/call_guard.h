// Holds calls that may block against a deadline, without moving them to another thread.
//
// With blocking communicators NCCL connects to its peers inside the first collective call; when a
// peer never comes, that call does not return. Collectives must be enqueued by the thread that owns
// the device (and the capture), so here a second thread looks on. When the deadline passes, or the
// job fails meanwhile, it
//   1. calls give_up on a thread of its own, which tells the other ranks and aborts NCCL;
//   2. once the call returns after that, run() throws a DeviceError:
//        rank 0: ncclAllReduce for all-reduce of bucket 3 did not return within 60000 ms
//   3. when call or abort still hang after `grace`, ends the process with the same words.
//
// run() costs two uncontended locks, so it can stand around every enqueue.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace dovetail::exec::cuda {

// A call into a library and what it is made for; both must outlive the call.
struct GuardedCall {
  const char* function = "";  // "ncclAllReduce"
  std::string_view subject;   // "all-reduce of bucket 3"
};

// What deadlines are read from, in nanoseconds; empty: the machine's clock. Tests have one of their own.
using DeadlineClock = std::function<std::int64_t()>;
std::int64_t read(const DeadlineClock& clock);

// The message on stderr, then exit code 3, at once: nothing is destroyed.
[[noreturn]] void end_process(const std::string& message);

struct CallGuardOptions {
  Rank rank = {};
  Duration deadline = std::chrono::seconds(60);
  Duration grace = std::chrono::seconds(3);
  std::function<std::string()> peer_failure{};        // "" while all is well; may be empty
  std::function<void(const std::string&)> give_up{};  // may be empty; on a thread of its own
  std::function<void(const std::string&)> end = end_process;
  DeadlineClock clock{};
};

class CallGuard {
 public:
  // Starts the thread that looks on.
  explicit CallGuard(CallGuardOptions options);
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;
  ~CallGuard();

  // Runs work on this thread; its exception is thrown here, a DeviceError with rank and subject in
  // front, unless the call was given up. Not nested, one thread at a time. After a call that was
  // given up, all others fail with its message.
  template <class Work>
  void run(const GuardedCall& call, const Work& work) {
    begin(call);
    std::exception_ptr error;
    try {
      work();
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    end(error);
  }

 private:
  // Shared with the thread that gives up, which may outlive this.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_ending = false;
    bool is_under_way = false;
    bool is_given_up = false;  // give_up has returned
    GuardedCall call;
    std::chrono::steady_clock::time_point began;
    std::int64_t began_ns = 0;  // by the clock of deadlines
    std::string failure;
  };
  void begin(const GuardedCall& call);
  void end(const std::exception_ptr& error);
  void look_on();
  [[nodiscard]] std::string objection() const;
  void give_up(std::unique_lock<std::mutex>& lock, const std::string& message);

  CallGuardOptions options_;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace dovetail::exec::cuda
