// Waits for the device by polling, and asks between two polls whether a peer has failed or a
// deadline has passed: a blocking wait of CUDA could not be ended.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/watch.h"

#include "base/error.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

namespace dovetail::exec::cuda {
namespace {

// Libraries and peers are asked this often, not at every poll.
constexpr auto kLookEvery = std::chrono::milliseconds(1);
constexpr auto kSleep = std::chrono::microseconds(20);

}  // namespace

void Watch::set_library(std::function<std::string()> error, std::function<void()> abort) {
  library_error_ = std::move(error);
  abort_ = std::move(abort);
}

void Watch::wait(const std::function<bool()>& is_done, const std::function<std::string()>& doing,
                 Pace pace) {
  const std::int64_t begin_ns = read(options_.clock);
  std::chrono::steady_clock::time_point looked = std::chrono::steady_clock::now();
  while (!is_over(is_done, doing)) {
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    if (now - looked >= kLookEvery) {
      looked = now;
      look(doing);
    }
    if (Duration(read(options_.clock) - begin_ns) > options_.deadline) {
      look(doing);  // a library or a peer may know better
      std::ostringstream message;
      message << doing() << " did not end within "
              << std::chrono::duration_cast<std::chrono::milliseconds>(options_.deadline).count()
              << " ms";
      fail(message.str());
    }
    if (pace == Pace::Sleep) std::this_thread::sleep_for(kSleep);
  }
}

// A device that reports an error ends the job like a peer that fails.
bool Watch::is_over(const std::function<bool()>& is_done,
                    const std::function<std::string()>& doing) {
  try {
    return is_done();
  } catch (const DeviceError& error) {
    fail(std::string(error.what()) + " during " + doing());
  }
}

void Watch::look(const std::function<std::string()>& doing) {
  if (library_error_) {
    const std::string error = library_error_();
    if (!error.empty()) fail(error + " during " + doing());
  }
  if (options_.peer_failure) {
    const std::string failure = options_.peer_failure();
    if (!failure.empty()) fail(failure + " during " + doing());
  }
}

void Watch::run(std::function<void()> work, const std::string& doing) {
  struct State {
    std::atomic<bool> is_done = false;
    std::exception_ptr error;
  };
  const auto state = std::make_shared<State>();
  std::thread([state, work = std::move(work)] {
    try {
      work();
    } catch (const std::exception&) {
      state->error = std::current_exception();
    }
    state->is_done.store(true, std::memory_order_release);
  }).detach();
  wait([&] { return state->is_done.load(std::memory_order_acquire); }, [&] { return doing; },
       Pace::Sleep);
  if (state->error == nullptr) return;
  try {
    std::rethrow_exception(state->error);
  } catch (const DeviceError& error) {
    std::ostringstream text;
    text << "rank " << options_.rank << ": " << doing << ": " << error.what();
    throw DeviceError(text.str());
  }
}

CallGuard& Watch::guard() {
  if (guard_ != nullptr) return *guard_;
  const auto give_up = [this](const std::string& message) {
    if (options_.tell_others) options_.tell_others(message);  // first, as in fail()
    if (abort_) abort_();
  };
  CallGuardOptions options;
  options.rank = options_.rank;
  options.deadline = options_.deadline;
  options.grace = options_.grace;
  options.peer_failure = options_.peer_failure;
  options.give_up = give_up;
  options.clock = options_.clock;
  guard_ = std::make_unique<CallGuard>(std::move(options));
  return *guard_;
}

void Watch::fail(const std::string& message) {
  std::ostringstream text;
  text << "rank " << options_.rank << ": " << message;
  // Tells first: an abort may hang as well.
  if (options_.tell_others) options_.tell_others(text.str());
  if (abort_) abort_();
  throw DeviceError(text.str());
}

}  // namespace dovetail::exec::cuda
