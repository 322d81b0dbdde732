// What one rank has in flight, carries and exposes over time, as counters to be drawn (perfetto.h says what
// each means).
//
//   in flight [bytes]    0 us: 0   20 us: 1048576   35 us: 2097152   50 us: 0
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "traces/metrics.h"
#include "traces/trace.h"

#include <span>
#include <string>
#include <vector>

namespace dovetail::traces {

// A value holds until the next point.
struct CounterPoint {
  Instant at;
  double value = 0;
  friend bool operator==(const CounterPoint&, const CounterPoint&) = default;
};
struct Counter {
  std::string name;
  std::string unit;
  std::vector<CounterPoint> points;  // never falling in time
};

// What hides communication. FirstStream: what keeps stream 0 busy, as in traces of our own machines.
// AnyStream: ops on any stream, as in a profiler's traces, where nobody says which stream computes.
enum class ComputeWork { FirstStream, AnyStream };

// Those of a rank without any collective are left out. REQUIRES: `windows` are those of the trace.
std::vector<Counter> counters_of(const Trace& trace, Rank rank, std::span<const StepWindow> windows,
                                 ComputeWork compute);

// Exposed communication of the rank in each window, by moments.
std::vector<Duration> exposed_by_step(const Trace& trace, Rank rank,
                                      std::span<const StepWindow> windows, ComputeWork compute);

}  // namespace dovetail::traces
