// Which core a thread runs on, and with what priority.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dovetail::exec::launch {

// The cores that the calling thread may use.
std::vector<std::int32_t> allowed_cores();

// Pins the calling thread to the (local_rank mod count)-th of its allowed cores and returns the
// core; threads that it starts later inherit it. The ranks of a host so share its cores evenly.
std::int32_t pin_to_core_of(std::int32_t local_rank);

// Gives the calling thread, and those it starts later, first-in-first-out real-time priority 1.
// Gloo needs it on its communication thread and its device thread alike, else they stall each other
// for a scheduler tick. Returns "" or, when the system refuses, a warning for the report.
std::string use_realtime_priority();

}  // namespace dovetail::exec::launch
