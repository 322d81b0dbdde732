// dovetail calibrate: measures this machine with the ranks that will run (kernels of a workload,
// collectives by size, copies, host cost, contention) and writes a cluster file that explore and
// plan read.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/job.h"
#include "models/clusters/cluster.h"
#include "schedule/program.h"

namespace dovetail::cli {

struct CalibrateOptions {
  std::string workload;      // whose ops are measured
  std::string training_job;  // or those of this job, as plan --job takes it
  std::string output;        // cluster file; "-": standard output
  bool json = false;         // likewise
  std::string name = "here";
  std::string data_dir;
  JobOptions job;
  std::int32_t op_steps = 10;
  std::string budget = "15s";              // for collectives by size
  std::vector<std::string> policies = {};  // measure what plans of these need; empty: of all
};

// Refused before any rank starts: a file that nobody named, or that would overwrite what is read; policies that are none.
void require_possible(const CalibrateOptions& options);

// The workload or the job, for so many ranks. Throws InputError, also for a job of another number of ranks.
schedule::Program program_to_measure(const CalibrateOptions& options, std::int64_t ranks);

void calibrate(const CalibrateOptions& options, std::ostream& out);

// What the measurements do not tell: name, origin, date, and notes on what was asked for.
void describe(models::Cluster& cluster, const CalibrateOptions& options, std::string backend);

// Tells people how far a calibration is, or nobody where nobody looks.
std::function<void(std::string_view)> progress_of_calibration();

}  // namespace dovetail::cli
