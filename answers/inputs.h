// What is to be predicted: a workload, and the machine that it runs on.
//
//   Inputs inputs = load_inputs({.workload = "resnet50", .cluster = "a100x8", .data_dir = "models"});
//   inputs.program, inputs.machine.costs      for a planner or a simulation
//   notes_on(inputs.machine, inputs.program, inputs.summary, schedule)
//
// A prediction rests on assumptions: tables that were derived, compute that was measured on another machine,
// a calibration over another link. notes_on() lists them, one line each, for a workload that was just read and
// for a plan file alike: what must be known of the workload travels in the plan's summary.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/clusters/cluster.h"
#include "models/costs/costs.h"
#include "models/costs/what_if.h"
#include "models/networks/job.h"
#include "models/workloads/profile.h"
#include "schedule/data_parallel.h"
#include "schedule/lower/pipeline/assign.h"
#include "schedule/plan_json.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::predict {

struct InputOptions {
  std::string workload;
  std::optional<jobs::Job> job = {};  // instead of a workload, which is then its text
  std::string cluster;   // empty: the machine that the workload's own profile was taken on
  std::string data_dir;  // holds workloads/ and clusters/
  std::optional<std::int64_t> world;
  std::optional<schedule::DataParallel> layout =
      {};                           // in place of `world`; per stage of a pipeline
  bool force = false;               // take a capture that is not valid
  models::WhatIf what_if = {};      // of the machine, and how many ranks
  schedule::StageSplit split = {};  // more than one stage: the model becomes a pipeline
};

// What everything costs, and what must be known of where that comes from.
struct Machine {
  models::Costs costs;  // its name is Costs::machine
  // Absent: the machine of a measured profile, or costs that were edited by hand.
  std::optional<models::Cluster> cluster = std::nullopt;
  std::vector<std::string> notes = {};  // of a machine that is no cluster, one line each

  [[nodiscard]] std::string link()
      const;  // what a calibrated machine's collectives were measured over
  [[nodiscard]] std::optional<Bytes> capacity() const;  // of a device's memory, where it is known
};

struct Inputs {
  schedule::Program program;
  Machine machine;
  schedule::PlanSummary summary;  // of a plan that is made of them, without what is predicted
  std::optional<models::RecordedStep> recorded =
      std::nullopt;  // of a recorded step: what it runs now
  std::optional<models::CostBounds> bounds =
      std::nullopt;  // of a recorded step on the machine that it was recorded on
};

// With a cluster that has a unit kernel (a calibrated CPU), timed work is replaced by stand-ins
// (models/clusters/stand_in.h). A pipeline needs a cluster; each of its S stages has world / S ranks, or,
// without a world, as many as the cluster. Throws InputError.
Inputs load_inputs(const InputOptions& options);

// "dp=16", "dp_shard=8,dp=2". Throws InputError, also for degrees that divide what a rank computes.
schedule::DataParallel parse_layout(const std::string& text);

// The collectives that sharded updates use in place of the all-reduce.
const std::vector<schedule::Collective>& sharding_collectives();

// What is assumed on this machine where the Program's gradients travel by these collectives.
std::vector<std::string> notes_on(const Machine& machine, const schedule::Program& program,
                                  const schedule::PlanSummary& summary,
                                  const std::vector<schedule::Collective>& used);
// The same for a Schedule of it, by the collectives and streams that it uses; first, where it does not fit or may not, that (room.h).
std::vector<std::string> notes_on(const Machine& machine, const schedule::Program& program,
                                  const schedule::PlanSummary& summary,
                                  const schedule::Schedule& schedule);

// Whether `name`, as --cluster takes it, is a measured profile: a file of one, or a shipped one. Its
// machine is then meant, which has the times of collectives and copies, but of no kernels.
bool is_profile(const std::string& name, const std::string& data_dir);

// Whether all work of the program is timed: a profile's machine has times for nothing else.
bool is_all_timed(const schedule::Program& program);

// A shipped name or a file, as --cluster takes it. Throws InputError; for a file that is something else
// which `import` reads, with the command that makes a cluster file of it.
models::Cluster load_cluster(const std::string& name, const std::string& data_dir,
                             const models::WhatIf& what_if = {});

// Throws InputError where another GPU is asked for and ops are times of the one they were measured on.
void require_shapes(const models::WhatIf& what_if, const schedule::Program& program);

// Applies what is asked of a machine that has costs and no rates: a measured profile's. Throws InputError for gpu= and world=.
void ask_of_profile(const models::WhatIf& what_if, models::Costs& costs);

// The job on the ranks that are asked for, with the samples of a step that it has. Throws InputError.
jobs::Job on_world(jobs::Job job, const models::WhatIf& what_if);

// The file that `name` means in this folder of shipped ones: as given, or shipped by that name; "" for a
// name that is neither (a model of the zoo).
std::string given_or_shipped(const std::string& name, const std::string& folder);

// How many ranks hold a copy of each stage. Throws InputError where stages would differ in that.
std::int64_t replicas_of(std::int64_t world, schedule::StageSplit split);

// Throws InputError where two of the workload's option world=, --world, --layout and --what-if world= are given.
void require_one_world(const std::string& workload, std::optional<std::int64_t> world,
                       const std::optional<schedule::DataParallel>& layout = {},
                       const models::WhatIf& what_if = {});

// Throws InputError where the job has more ranks than the cluster, and that is no family (models/clusters/cluster.h).
void require_room(const jobs::Job& job, const models::Cluster& cluster);

// How many of the cluster's ranks the job leaves without work, and the note on them.
std::int64_t idle_ranks(const jobs::Job& job, const models::Cluster& cluster);
std::string idle_note(const jobs::Job& job, std::int64_t idle);

// Makes a pipeline of the workload's model, which holds the replicas of one stage; one stage: leaves
// it alone. What it did, in a line. Throws InputError with the reason of a refusal.
std::string split_stages(schedule::Program& program, const std::string& workload,
                         schedule::StageSplit split);

}  // namespace dovetail::predict
