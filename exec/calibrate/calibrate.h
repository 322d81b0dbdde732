// Everything about a machine that a prediction needs, measured in one go on all ranks.
//
//   calibrate::Rig rig(exchange, ports);
//   calibrate::Calibration result = calibrate::calibrate(rig, plan, {});
//
// The file it becomes is models/cluster.h's business. Every rank gets the same result.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/calibrate/collectives.h"
#include "exec/calibrate/compute.h"
#include "exec/calibrate/contention.h"
#include "exec/calibrate/host.h"
#include "exec/calibrate/rig.h"
#include "exec/machine.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace dovetail::exec::calibrate {

struct Options {
  std::int32_t op_steps = 10;
  CollectiveOptions collectives;
  ContentionOptions contention;
  Bytes tiny = kib(4);  // message of the per-collective processor time
  // Told what is being measured now, on rank 0: "collectives by size". May be empty.
  std::function<void(std::string_view)> progress;
};

struct Calibration {
  std::vector<OpTime> ops;
  std::vector<WorkTime> works;  // the same by distinct work
  Spread unit_kernel;           // of cpu::kUnitGemm
  CopyTime copies;
  HostTimes host;
  std::vector<CollectiveTimes> collectives;
  std::vector<RankContention> contention;        // large messages, by rank
  std::vector<RankContention> tiny_collectives;  // by rank: cpu_per_collective
  Conditions conditions;
  Verdict verdict;
};

// The steps may use a plan with any schedule: only its program is computed.
Calibration calibrate(Rig& rig, const schedule::ScheduledProgram& plan, const Options& options);

}  // namespace dovetail::exec::calibrate
