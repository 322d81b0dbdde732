// The clock of measured timings, CLOCK_MONOTONIC: all ranks of one host share it, and it never
// jumps when the time of day is set.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace dovetail::exec {

inline std::int64_t now_ns() {
  // libstdc++ and libc++ read CLOCK_MONOTONIC for steady_clock on Linux.
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace dovetail::exec
