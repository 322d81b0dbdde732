// dovetail calibrate: measures this machine with the ranks that will run (kernels of a workload,
// collectives by size, copies, host cost, contention) and writes a cluster file that explore and
// plan read.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "cli/job.h"

namespace dovetail::cli {

struct CalibrateOptions {
  std::string workload;  // whose ops are measured
  std::string output;    // cluster file; "-": standard output
  bool json = false;     // likewise
  std::string name = "here";
  std::string data_dir;
  JobOptions job;
  std::int32_t op_steps = 10;
  std::string budget = "15s";              // for collectives by size
  std::vector<std::string> policies = {};  // measure what plans of these need; empty: of all
};

void calibrate(const CalibrateOptions& options, std::ostream& out);

}  // namespace dovetail::cli
