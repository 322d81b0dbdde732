// Everything about a machine that a prediction needs, measured in one go on all ranks.
//
//   calibrate::Rig rig(exchange, ports);
//   calibrate::Calibration result = calibrate::calibrate(rig, plan, {});
//
// The file it becomes is models/cluster.h's business. Every rank gets the same result.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/cpu/collectives.h"
#include "calibrate/cpu/compute.h"
#include "calibrate/cpu/contention.h"
#include "calibrate/cpu/host.h"
#include "calibrate/cpu/rig.h"
#include "exec/machine.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::calibrate {

struct Options {
  std::int32_t op_steps = 10;
  // Rewritten forms of the plan's program (micro-steps with their sums, sharded updates), whose ops
  // are measured too.
  std::vector<schedule::ScheduledProgram> variants;
  std::int32_t variant_steps = 6;
  UnitKernelOptions unit_kernel;
  Bytes arena = mib(128);  // through which copies and scales go
  CollectiveOptions collectives;
  CollectiveOptions halves = {.kind = schedule::Collective::ReduceScatter,
                              .smallest = kib(4),
                              .largest = mib(64),
                              .growth = 4,
                              .budget = std::chrono::seconds(5)};  // each of them
  bool measures_halves = true;  // reduce-scatter and all-gather by size
  ContentionOptions contention;
  Bytes tiny = kib(4);  // message of the per-collective processor time
  // Told what is being measured now, on rank 0: "collectives by size". May be empty.
  std::function<void(std::string_view)> progress;
};

// What the reference load says about one step of a calibration: of the rank that was disturbed most.
struct DisturbedStep {
  std::string name;
  double taken = 0;  // share of its core
};

struct Calibration {
  std::vector<OpTime> ops;
  double skew = 0;                            // ComputeTimes::skew
  std::vector<WorkTime> works;                // the same by distinct work
  std::vector<std::vector<OpTime>> variants;  // of each variant, all of its ops
  Spread unit_kernel;                         // of cpu::kUnitGemm
  CopyTime copies;
  CopyTime scales;  // per byte of the buffer
  HostTimes host;
  std::vector<CollectiveTimes> collectives;  // all-reduce
  std::vector<CollectiveTimes> reduce_scatter;
  std::vector<CollectiveTimes> all_gather;
  std::vector<RankContention> contention;        // large messages, by rank
  std::vector<RankContention> tiny_collectives;  // by rank: cpu_per_collective
  std::vector<DisturbedStep> steps;              // of the calibration, in order
  traces::Disturbances disturbances;             // of all of it, by rank
  double reference_load_share = 0;  // processor time of the reference load, of one core
  exec::Conditions conditions;
  exec::Verdict verdict;
};

// The steps may use a plan with any schedule: only its program is computed.
Calibration calibrate(Rig& rig, const schedule::ScheduledProgram& plan, const Options& options);

}  // namespace dovetail::calibrate
