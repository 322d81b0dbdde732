// One rank's part of a calibration on processors: what is measured there, in which order, and for which plans.
//
//   Rig rig(exchange, ports);
//   MeasuredProcessors found = measure_processors(rig, {.facts = {...}, .data_dir = "models"});
//
// The workload's timed ops are replaced by repetitions of the unit kernel, which is measured first; then the
// network's shield, without which no collective can be judged; then everything else (cpu/calibrate.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/units.h"
#include "calibrate/cluster.h"
#include "calibrate/cpu/rig.h"
#include "models/cluster.h"

namespace dovetail::calibrate {

struct ProcessorOptions {
  ClusterFacts facts;
  std::string data_dir;
  std::int32_t op_steps = 10;
  Duration budget = std::chrono::seconds(15);        // for collectives by size
  std::function<void(std::string_view)> progress{};  // told on rank 0; may be empty
};

struct MeasuredProcessors {
  models::Cluster cluster;
  Calibration measured;
};

// All ranks call it, and get the same result. Throws InputError where fewer than two sizes of all-reduce could
// be measured within the budget.
MeasuredProcessors measure_processors(Rig& rig, const ProcessorOptions& options);

}  // namespace dovetail::calibrate
