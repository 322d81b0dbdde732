// Compares the median steps of two traces, with communication and without.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/exposed.h"

#include <vector>

#include "traces/metrics.h"

namespace dovetail::traces {
namespace {

Duration median_time(const Trace& trace) {
  const std::vector<Duration> times = step_times(trace);
  return spread(times).median;
}

}  // namespace

Exposed exposed_of(const Trace& with, const Trace& without) {
  const StepReport step = median_step(with);
  Exposed exposed{.alone = median_time(without)};
  exposed.stalls = step.breakdown[Activity::Stall] + step.breakdown[Activity::Collective];
  exposed.difference = median_time(with) - exposed.alone;
  exposed.uncovered = step.exposed;
  return exposed;
}

}  // namespace dovetail::traces
