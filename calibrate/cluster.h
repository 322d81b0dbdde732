// From what was measured to a cluster file, on processors and on GPUs.
//
// A cluster file holds what models need of a machine: tables of collectives, times of kernels, copies, passes,
// the host's calls, contention, and how far all of it may be trusted. What only the caller knows (origin, date,
// the link, notes on the device) it adds itself.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "calibrate/cpu/calibrate.h"
#include "calibrate/device/calibrate.h"
#include "models/cluster.h"
#include "schedule/program.h"

namespace dovetail::calibrate {

// What a calibration was asked for.
struct ClusterFacts {
  std::string name = "here";
  std::string workload;                    // whose ops were measured
  std::string backend;                     // "cpu/ring", "cuda"
  std::vector<std::string> policies = {};  // measured for plans of these; empty: for all
};

// Of ranks on processors, each with a communication thread.
struct CpuMeasurements {
  const schedule::Program& program;  // that was executed
  models::UnitKernel unit;
  const Calibration& measured;
  Duration network_shield{};
};
models::Cluster cluster_of(const ClusterFacts& facts, const CpuMeasurements& what);

// How a GPU executed what was measured: one file is one way of executing.
struct DeviceFacts {
  std::string issue = "eager";
  std::string f32_math = "full";
  std::string buffers = "plain";
  std::string stand_in = {};  // what collectives were replaced by; "": nothing
  std::int32_t max_ctas = 0;  // 0: the library's choice
};
models::Cluster cluster_of(const ClusterFacts& facts, const DeviceFacts& device,
                           const schedule::Program& program, const GpuCalibration& measured);

// A reason why the measurements should not be used, unless it is known already.
void object(models::Cluster& cluster, const std::string& objection);

}  // namespace dovetail::calibrate
