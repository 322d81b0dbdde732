// What several subcommands read: a workload on a cluster, ready for the planner.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/cluster.h"
#include "models/costs.h"
#include "lower/pipeline/assign.h"
#include "schedule/program.h"

namespace dovetail::cli {

struct InputOptions {
  std::string workload;
  std::string cluster;   // empty: the machine that the workload's own profile was taken on
  std::string data_dir;  // holds workloads/ and clusters/
  std::optional<std::int64_t> world;
  bool force = false;               // take a capture that is not valid
  schedule::StageSplit split = {};  // more than one stage: the model becomes a pipeline
};

struct Inputs {
  schedule::Program program;
  models::Costs costs;
  std::string cluster;             // name, for reports
  std::vector<std::string> notes;  // assumptions, one line each
  // What is assumed besides where gradients are reduce-scattered and parameters gathered.
  std::vector<std::string> sharding_notes = {};
  std::string link = {};  // what a calibrated machine's collectives were measured over
};

// Whether `name`, as --cluster takes it, is a measured profile: a file of one, or a shipped one. Its
// machine is then meant, which has the times of collectives and copies, but of no kernels.
bool is_profile(const std::string& name, const std::string& data_dir);

// Whether all work of the program is timed: a profile's machine has times for nothing else.
bool is_all_timed(const schedule::Program& program);

// A shipped name or a file, as --cluster takes it. Throws InputError; for a file that is something else
// which `import` reads, with the command that makes a cluster file of it.
models::Cluster load_cluster(const std::string& name, const std::string& data_dir);

// The collectives that sharded updates use in place of the all-reduce.
const std::vector<schedule::Collective>& sharding_collectives();

// With a cluster that has a unit kernel (a calibrated CPU), timed work is replaced by stand-ins
// (models/stand_in.h). A pipeline needs a cluster; each of its S stages has world / S ranks, or,
// without a world, as many as the cluster. Throws InputError.
Inputs load_inputs(const InputOptions& options);

// How many ranks hold a copy of each stage. Throws InputError where stages would differ in that.
std::int64_t replicas_of(std::int64_t world, schedule::StageSplit split);

// Throws InputError where the workload's option world= and --world are both given.
void require_one_world(const std::string& workload, std::optional<std::int64_t> world);

// Makes a pipeline of the workload's model, which holds the replicas of one stage; one stage: leaves
// it alone. What it did, in a line. Throws InputError with the reason of a refusal.
std::string split_stages(schedule::Program& program, const std::string& workload,
                         schedule::StageSplit split);

}  // namespace dovetail::cli
