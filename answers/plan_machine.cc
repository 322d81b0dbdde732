// Looks for a plan's machine: a file of costs, a measured profile, or a cluster, which is then priced anew.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/plan_machine.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/attempt.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "models/clusters/cluster.h"
#include "models/costs/costs_json.h"
#include "models/workloads/workload.h"
#include "schedule/program.h"

namespace dovetail::predict {
namespace {

// The machine of a measured profile, if that is the one that is asked for: --cluster names a profile, or
// is left out for a plan that was made for the machine of its workload.
std::optional<Machine> machine_of_profile(const PlanMachineOptions& options,
                                          const schedule::Plan& plan) {
  const schedule::PlanSummary& made = plan.summary;
  const std::string name = options.cluster.empty() ? made.workload : options.cluster;
  if (!is_profile(name, options.data_dir)) return std::nullopt;
  models::Workload workload = models::load_workload(name, {}, options.data_dir);
  const bool fits = workload.own_costs && is_all_timed(plan.program) &&
                    workload.program.world_size == plan.program.world_size;
  if (!fits && !options.cluster.empty()) {
    throw InputError(
        options.command + ": --cluster " + name +
        ": the machine of a measured profile, which has times for plans of profiles over "
        "as many ranks only, and only where the profile has all_reduce_alone");
  }
  if (!fits) return std::nullopt;
  if (options.cluster.empty() && workload.own_costs->machine != made.cluster) {
    return std::nullopt;
  }
  models::reprice(*workload.own_costs, plan.program);
  ask_of_profile(options.what_if, *workload.own_costs);
  workload.notes.insert(workload.notes.end(), workload.own_notes.begin(), workload.own_notes.end());
  return Machine{.costs = *std::move(workload.own_costs), .notes = std::move(workload.notes)};
}

// Costs that `predict --costs` wrote, perhaps edited since.
std::optional<Machine> machine_of_costs(const std::string& path) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return std::nullopt;
  const JsonFile file(path);
  JsonObject root = file.root();
  if (!root.has("schema") || root.string("schema") != models::kCostsSchema) return std::nullopt;
  return Machine{.costs = models::costs_from_json(file.root()),
                 .notes = {"costs as they stand in " + path}};
}

void refuse_world(const models::WhatIf& what_if) {
  if (!what_if.world) return;
  throw InputError("--what-if world: a plan is of its ranks; plan --what-if world= makes one");
}

models::WhatIf own_what_if(const schedule::PlanSummary& summary) {
  const auto what_if = attempt([&] { return models::parse_what_if(summary.what_if); });
  if (!what_if) throw InputError("the plan's what_if: " + what_if.error);
  return *what_if.value;
}

Machine named_machine(const PlanMachineOptions& options, const schedule::Plan& plan) {
  std::error_code unreadable;
  const std::string& file = plan.summary.cluster_file;
  if (options.cluster.empty() && std::filesystem::is_regular_file(file, unreadable)) {
    PlanMachineOptions there = options;
    there.cluster = file;
    Machine machine = named_machine(there, plan);
    if (machine.costs.machine == plan.summary.cluster) return machine;
    throw InputError(options.command + ": the plan was made for " + plan.summary.cluster +
                     ", but " + file + " is " + machine.costs.machine +
                     " now: name the machine with --cluster");
  }
  if (std::optional<Machine> read = machine_of_costs(options.cluster)) {
    ask_of_profile(options.what_if, read->costs);
    return *std::move(read);
  }
  if (std::optional<Machine> own = machine_of_profile(options, plan)) return *std::move(own);
  const std::string name = options.cluster.empty() ? plan.summary.cluster : options.cluster;
  const bool is_shipped = models::is_shipped_cluster(name, options.data_dir + "/clusters");
  if (options.cluster.empty() && !is_shipped) {
    throw InputError(options.command + ": the machine of the plan, \"" + name +
                     "\", is no shipped one: name its file with --cluster");
  }
  models::Cluster cluster = load_cluster(name, options.data_dir, options.what_if);
  require_shapes(options.what_if, plan.program);
  models::Costs costs = models::costs_for(cluster, plan.program);
  return {.costs = std::move(costs), .cluster = std::move(cluster)};
}

}  // namespace

std::optional<Duration> bound_on(const schedule::Plan& plan, const std::string& cluster,
                                 const models::WhatIf& what_if) {
  if (!cluster.empty() || what_if.is_given || !plan.summary.predicted) return std::nullopt;
  return plan.summary.predicted->lower_bound;
}

PlanAndMachine plan_on_workload(const std::string& path, InputOptions wanted) {
  const schedule::Plan made = schedule::read_plan(path);
  refuse_world(wanted.what_if);
  wanted.split = schedule::split_of(made.program);
  if (wanted.layout || !is_profile(wanted.workload, wanted.data_dir)) {
    if (!wanted.layout) wanted.world = made.program.world_size;
    if (wanted.cluster.empty()) {
      if (!wanted.what_if.is_given) {
        wanted.what_if = own_what_if(made.summary);
        wanted.what_if.world.reset();  // the plan has its ranks
      }
      wanted.cluster =
          made.summary.cluster_file.empty() ? made.summary.cluster : made.summary.cluster_file;
    }
  }
  Inputs inputs = load_inputs(wanted);
  auto read = attempt([&] { return schedule::read_plan_onto(path, std::move(inputs.program)); });
  if (!read) {
    throw InputError(read.error + "; held against the gradients of " + wanted.workload +
                     ", which must be the plan's model");
  }
  schedule::Plan plan = *std::move(read.value);
  plan.summary = std::move(inputs.summary);
  inputs.machine.notes.push_back("the schedule is the plan's, durations are those of " +
                                 wanted.workload);
  return {.plan = std::move(plan), .machine = std::move(inputs.machine)};
}

PlanAndMachine step_as_it_stands(const InputOptions& wanted) {
  Inputs inputs = load_inputs(wanted);
  if (!schedule::owed_gradients(inputs.program).empty()) {
    throw InputError("predict: PLAN is missing: the gradients of " + wanted.workload +
                     " are to be reduced; dovetail plan or explore says how");
  }
  schedule::Plan plan{
      .program = std::move(inputs.program), .schedule = {}, .summary = std::move(inputs.summary)};
  plan.schedule.policy = "as it stands";
  return {.plan = std::move(plan), .machine = std::move(inputs.machine)};
}

Machine machine_of(PlanMachineOptions options, schedule::Plan& plan) {
  refuse_world(options.what_if);
  if (options.cluster.empty() && !options.what_if.is_given) {
    options.what_if = own_what_if(plan.summary);
  } else {
    plan.summary.what_if = to_string(options.what_if);
  }
  return named_machine(options, plan);
}

}  // namespace dovetail::predict
