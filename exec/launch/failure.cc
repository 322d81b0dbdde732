// One message behind a lock, and an eventfd that is written once and never read.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/failure.h"

#include "base/error.h"

#include <sys/eventfd.h>

#include <cerrno>

namespace dovetail::exec::launch {

Failure::Failure() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!event_.is_open()) throw DeviceError("eventfd: " + errno_text(errno));
}

bool Failure::raise(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!message_.empty()) return false;
  message_ = message.empty() ? "a rank failed" : message;
  eventfd_write(event_.get(), 1);
  changed_.notify_all();
  return true;
}

bool Failure::raised() const {
  const std::lock_guard lock(mutex_);
  return !message_.empty();
}

std::string Failure::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

std::string Failure::await(Duration patience) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return !message_.empty(); });
  return message_;
}

}  // namespace dovetail::exec::launch
