// What all measurements of a GPU's calibration share: the ranks, a way to execute plans, and how samples
// of several ranks become one figure that is equal on all of them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/device/calibrate.h"
#include "calibrate/device/host_timer.h"
#include "exec/backend.h"
#include "exec/run.h"
#include "schedule/scheduled_program.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <variant>
#include <vector>

namespace dovetail::calibrate {

inline constexpr std::int32_t kWarmup = 2;

struct Lab {
  const exec::Exchange& exchange;
  const MakeBackend& make_backend;
  const CalibrateOptions& options;
  std::int64_t ranks = 1;  // of the plans
};

// Of the steps that CalibrateOptions asks for. Throws DeviceError where a value came out wrong: the times
// of a library that does not do its work mean nothing.
std::vector<exec::Timing> timings_of(const Lab& lab, const schedule::ScheduledProgram& plan);

// Runs the plan and leaves the calls' times in `timer`; returns the timings.
std::vector<exec::Timing> run_timed(const Lab& lab, const schedule::ScheduledProgram& plan,
                                    HostTimer& timer, std::int32_t steps);

// Samples of all ranks together.
std::vector<std::int64_t> pooled(const Lab& lab, const std::vector<std::int64_t>& mine);
// Of all ranks' samples; 0 where there is none.
Duration median_of(const Lab& lab, const std::vector<std::int64_t>& mine);
// The median of each call of a step over the steps, and the mean of those; over the ranks too.
Duration mean_of_calls(const Lab& lab, const std::vector<std::int64_t>& samples_ns,
                       std::size_t calls);

// This rank's commands of one kind.
template <class Action>
std::set<CommandId> commands_of(const Lab& lab, const schedule::ScheduledProgram& plan) {
  std::set<CommandId> ids;
  for (const schedule::Command& command : exec::role_of(plan, lab.exchange.rank).commands) {
    if (std::holds_alternative<Action>(command.action)) ids.insert(command.id);
  }
  return ids;
}

}  // namespace dovetail::calibrate
