// Binds threads to cores and sets their priority through the scheduler's own calls, and says what
// the system refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/affinity.h"

#include "base/error.h"
#include "exec/launch/socket.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace dovetail::exec::launch {

std::vector<std::int32_t> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    throw DeviceError("sched_getaffinity: " + errno_text(errno));
  }
  std::vector<std::int32_t> cores;
  for (std::int32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::int32_t pin_to_core_of(std::int32_t local_rank) {
  const std::vector<std::int32_t> cores = allowed_cores();
  DOVETAIL_CHECK(!cores.empty() && local_rank >= 0) << local_rank;
  const std::int32_t core = cores[static_cast<std::size_t>(local_rank) % cores.size()];
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    throw DeviceError("cannot pin a thread to core " + std::to_string(core) + ": " +
                      errno_text(errno));
  }
  return core;
}

std::string ask_for_quick_wakeups() {
  // Neither glibc 2.36 nor a header that agrees with its sched.h has this structure of the kernel.
  struct Attributes {
    std::uint32_t size = sizeof(Attributes);
    std::uint32_t policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t slice_ns = 100'000;  // "runtime" in the kernel's words
    std::uint64_t deadline_ns = 0;
    std::uint64_t period_ns = 0;
  } attributes;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) == 0) return "";
  return "short scheduler slices are refused: " + errno_text(errno);
}

void ask_for_exact_timers() {
  constexpr unsigned long kSlackNs = 1;  // 0 would mean the default
  prctl(PR_SET_TIMERSLACK, kSlackNs);
}

std::string use_realtime_priority(RealTime priority) {
  const sched_param parameters{.sched_priority = static_cast<int>(priority)};
  const int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters);
  return error == 0 ? "" : "real-time priority is refused: " + errno_text(error);
}

}  // namespace dovetail::exec::launch
