// Watches calls that may block from a second thread: when a call outlasts its deadline, or the job
// fails meanwhile, the thread aborts the communicators, which makes the call return.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/call_guard.h"

#include "base/error.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace dovetail::exec::cuda {
namespace {

using SteadyClock = std::chrono::steady_clock;

// How often the thread looks: a call is given up at most so long after its deadline.
constexpr Duration kLongestPause = std::chrono::milliseconds(50);
constexpr Duration kShortestPause = std::chrono::milliseconds(1);

Duration pause_of(Duration deadline) {
  return std::clamp(deadline / 4, kShortestPause, kLongestPause);
}

}  // namespace

std::int64_t read(const DeadlineClock& clock) {
  if (clock) return clock();
  return std::chrono::duration_cast<Duration>(SteadyClock::now().time_since_epoch()).count();
}

void end_process(const std::string& message) {
  static_cast<void>(std::fprintf(stderr, "dovetail: %s\n", message.c_str()));
  static_cast<void>(std::fflush(stderr));
  std::_Exit(3);
}

CallGuard::CallGuard(CallGuardOptions options)
    : options_(std::move(options)), state_(std::make_shared<State>()) {
  thread_ = std::thread([this] { look_on(); });
}

CallGuard::~CallGuard() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_ending = true;
  }
  state_->changed.notify_all();
  thread_.join();
}

void CallGuard::begin(const GuardedCall& call) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure.empty()) throw DeviceError(state_->failure);
  state_->call = call;
  state_->began = SteadyClock::now();
  state_->began_ns = read(options_.clock);
  state_->is_under_way = true;
}

void CallGuard::end(const std::exception_ptr& error) {
  std::unique_lock lock(state_->mutex);
  state_->is_under_way = false;
  if (!state_->failure.empty()) {
    state_->changed.notify_all();
    // What give_up touches must not be destroyed under it.
    state_->changed.wait(lock, [this] { return state_->is_given_up; });
    throw DeviceError(state_->failure);
  }
  if (error == nullptr) return;
  try {
    std::rethrow_exception(error);
  } catch (const DeviceError& failed) {  // it names the function already
    std::ostringstream text;
    text << "rank " << options_.rank << ": " << state_->call.subject << ": " << failed.what();
    throw DeviceError(text.str());
  }
}

void CallGuard::look_on() {
  const Duration pause = pause_of(options_.deadline);
  std::unique_lock lock(state_->mutex);
  while (!state_->is_ending) {
    state_->changed.wait_for(lock, pause);
    if (!state_->is_under_way || !state_->failure.empty()) continue;
    const std::string message = objection();
    if (!message.empty()) give_up(lock, message);
  }
}

// Why the call under way must not go on; "" while it may.
std::string CallGuard::objection() const {
  const bool is_late = Duration(read(options_.clock) - state_->began_ns) > options_.deadline;
  const bool may_hang =
      SteadyClock::now() - state_->began > kShortestPause && options_.peer_failure != nullptr;
  const std::string peer = may_hang ? options_.peer_failure() : "";
  if (!is_late && peer.empty()) return "";
  std::ostringstream text;
  text << "rank " << options_.rank << ": ";
  if (!peer.empty()) text << peer << " during ";
  text << state_->call.function << " for " << state_->call.subject;
  if (peer.empty()) {
    text << " did not return within "
         << std::chrono::duration_cast<std::chrono::milliseconds>(options_.deadline).count()
         << " ms";
  }
  return text.str();
}

void CallGuard::give_up(std::unique_lock<std::mutex>& lock, const std::string& message) {
  state_->failure = message;
  std::thread([state = state_, give_up = options_.give_up, message] {
    // Said before the abort: NCCL frees the communicator under the call, which may crash.
    static_cast<void>(std::fprintf(stderr, "dovetail: %s\n", message.c_str()));
    try {
      if (give_up) give_up(message);
    } catch (const std::exception&) {
      // The message that is thrown already says what went wrong first.
    }
    const std::lock_guard done(state->mutex);
    state->is_given_up = true;
    state->changed.notify_all();
  }).detach();
  const bool is_over = state_->changed.wait_for(
      lock, options_.grace, [this] { return state_->is_given_up && !state_->is_under_way; });
  if (is_over) return;
  lock.unlock();
  options_.end(message);
  lock.lock();
}

}  // namespace dovetail::exec::cuda
