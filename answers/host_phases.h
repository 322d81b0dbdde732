// In which phases of a step the host takes most of the time: the device waits there for what Python issues.
//
//   for (const HostPhase& phase : host_bound_phases(program, costs)) phase.phase, phase.share()    // forward, 1
//   widened(range, phases)                                  // 0.59 to 1.7 times where all of the step is such
//
// A step begins with both at rest. Where the host has run ahead, as behind a long backward, a phase is not host-bound, however long it takes to
// issue. Of each phase the role whose host takes the largest part. Counted are the program's ops; what buckets need besides is left out.
// On one machine the same host-bound forward took 9.2 and 15.4 ms (one H100, 2026-11-28), so the interval of such a step is that wide at least.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "answers/step_range.h"
#include "base/units.h"
#include "models/costs/costs.h"
#include "schedule/program.h"

namespace dovetail::predict {

struct HostPhase {
  schedule::Phase phase = schedule::Phase::Forward;
  Duration host{};     // to issue its ops
  Duration device{};   // to run them
  double share = 0;    // of the phase, that the host takes; at most 1
  double of_step = 0;  // host / step
  friend bool operator==(const HostPhase&, const HostPhase&) = default;
};

// Those in which the host takes over 0.85 of the phase, in order. Empty where the host does not run ahead of a device.
// `more`: of a step of so many micro-batches more (or less, below 0) than the program has, each like its second. REQUIRES: then it
// has two.
std::vector<HostPhase> host_bound_phases(const schedule::Program& program,
                                         const models::Costs& costs, std::int64_t more = 0);

// The interval of such a step: no narrower than that of what its host takes.
StepRange widened(const StepRange& range, Duration step, std::span<const HostPhase> phases);

// "host-bound: forward (host 100 %), backward (host 91 %)"; REQUIRES: there is one.
std::string to_string(std::span<const HostPhase> phases);

}  // namespace dovetail::predict
