// What several subcommands read: a workload on a cluster, ready for the planner.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/cluster.h"
#include "models/collective_table.h"
#include "models/costs.h"
#include "schedule/program.h"

namespace dovetail::cli {

struct InputOptions {
  std::string workload;
  std::string cluster;   // empty: the machine that the workload's own profile was taken on
  std::string data_dir;  // holds workloads/ and clusters/
  std::optional<std::int64_t> world;
};

struct Inputs {
  schedule::Program program;
  models::Costs costs;
  models::CollectiveTable all_reduce;
  std::string cluster;             // name, for reports
  std::vector<std::string> notes;  // assumptions, one line each
};

// With a cluster that has a unit kernel (a calibrated CPU), timed work is replaced by stand-ins
// (models/stand_in.h). Throws InputError.
Inputs load_inputs(const InputOptions& options);

// The size of the largest process group that owes reductions, for which the all-reduce table is
// taken.
std::int64_t reduction_ranks(const schedule::Program& program);

}  // namespace dovetail::cli
