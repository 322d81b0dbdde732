// Ends long work in its midst: what computes asks now and then, and unwinds once somebody has set the flag.
//
//   throw_if_interrupted();      in loops that can take seconds: a load and a branch
//
// Only who has something to show of what was found until then sets the flag, and catches Interrupted (cli/signals.h). It is no
// std::exception, so nothing takes it for a mistake.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

namespace dovetail {

class Interrupted {};

// Set by a handler of signals, which may touch nothing else.
inline std::atomic<bool> interrupts_work = false;
static_assert(std::atomic<bool>::is_always_lock_free);

inline void throw_if_interrupted() {
  if (interrupts_work.load(std::memory_order_relaxed)) throw Interrupted();
}

}  // namespace dovetail
