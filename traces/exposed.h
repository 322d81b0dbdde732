// How much of its communication a measured step shows, by three definitions, which differ by what
// they blame on communication:
//   stalls      what the compute stream stood still for: its waits, and collectives on it
//   difference  the step minus the same step with all communication taken out: also what contention
//               and launching cost
//   uncovered   the time in which a collective was under way and no compute ran (traces/metrics.h)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "traces/trace.h"

namespace dovetail::traces {

struct Exposed {
  Duration alone{};  // the step without communication, median
  Duration stalls{};
  Duration difference{};  // of medians; noise can make it negative
  Duration uncovered{};
};

// Stalls and uncovered are of the median step. REQUIRES: each step of both has a span.
Exposed exposed_of(const Trace& with, const Trace& without);

}  // namespace dovetail::traces
