// From two traces to the three figures.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/exposed.h"

#include <vector>

#include "traces/metrics.h"

namespace dovetail::cli {
namespace {

Duration median_time(const traces::Trace& trace) {
  const std::vector<Duration> times = traces::step_times(trace);
  return traces::spread(times).median;
}

}  // namespace

Exposed exposed_of(const traces::Trace& with, const traces::Trace& without) {
  const traces::StepReport step = traces::median_step(with);
  Exposed exposed{.alone = median_time(without)};
  exposed.stalls =
      step.breakdown[traces::Activity::Stall] + step.breakdown[traces::Activity::Collective];
  exposed.difference = median_time(with) - exposed.alone;
  exposed.uncovered = step.exposed;
  return exposed;
}

}  // namespace dovetail::cli
