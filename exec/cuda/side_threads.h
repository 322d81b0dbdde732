// Calls that may hang, each on a thread of its own, waited for only so long.
//
//   threads.start(calls);                 all at once
//   if (!threads.wait(seconds(1))) ...    some still hang; they are left behind
//
// For aborting communicators. ncclCommAbort raises the communicator's abort flag first and then
// waits until its kernels have left the device and no CUDA graph refers to it any more. Those
// kernels may stand behind ones of another communicator, whose flag must be up as well: so all
// aborts run side by side, and whoever owns such a graph must not wait for them without end.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace dovetail::exec::cuda {

class SideThreads {
 public:
  // REQUIRES: calls own what they touch, since they may outlive this, and throw nothing.
  void start(std::vector<std::function<void()>> calls) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->running += calls.size();
    }
    for (std::function<void()>& call : calls) {
      std::thread([state = state_, call = std::move(call)] {
        call();
        const std::lock_guard lock(state->mutex);
        --state->running;
        state->changed.notify_all();
      }).detach();
    }
  }

  // True once all calls have returned; false when some have not within `patience`.
  [[nodiscard]] bool wait(Duration patience) const {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, patience, [this] { return state_->running == 0; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t running = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace dovetail::exec::cuda
