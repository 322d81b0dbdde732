// Which core a thread runs on, and with what priority: ranks that share a machine must not share a
// core, and a communication thread must come before its compute thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dovetail::exec::launch {

// Which cores a rank may use. OneEach: its share of the host, for ranks that compute on processors.
// Any: for ranks that drive a GPU. The threads that CUDA and NCCL start inherit the choice, and on
// one core NCCL's network threads would compete with the thread that issues the step.
enum class Cores { OneEach, Any };

// The cores that the calling thread may use.
std::vector<std::int32_t> allowed_cores();

// Pins the calling thread to the (local_rank mod count)-th of its allowed cores and returns the
// core; threads that it starts later inherit it. The ranks of a host so share its cores evenly.
std::int32_t pin_to_core_of(std::int32_t local_rank);

// Asks the scheduler for short slices (0.1 ms) for the calling thread: it gets no more of the
// processor than before, but it gets it soon after it wakes up. For a thread that mostly waits
// beside one that computes, where real-time priority is refused: 8 all-reduces of 1 MB on a shaped
// 1 Gbit/s link, under compute on a busy machine, took 75.8 ms without and 70.5 ms with it (67.6 ms
// is the link's own time). Needs no privilege and takes a real-time priority away. Returns "" or why
// it is refused; kernels before Linux 6.12 ignore it.
std::string ask_for_quick_wakeups();

// Lets the calling thread, and those it starts later, wake up from a timed wait when its time has come;
// by default Linux may be 50 us late, to save wake-ups. Needs no privilege.
void ask_for_exact_timers();

// Real-time priorities, lowest first. Who transfers runs before who computes: after a preemption of the
// core much has arrived, and a thread that must share the core to work it off leaves the link idle for
// milliseconds. The reference load runs before both, so that neither looks like a preemption.
enum class RealTime { Transfers = 1, ReferenceLoad = 2 };

// Gives the calling thread, and those it starts later, this first-in-first-out priority. Gloo needs it
// on its communication thread and its device thread alike, else they stall each other for a scheduler
// tick. Returns "" or why the system refuses it.
std::string use_realtime_priority(RealTime priority);

}  // namespace dovetail::exec::launch
