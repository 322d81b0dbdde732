// Bringing a workload and a cluster together.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/inputs.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/json_reader.h"
#include "cli/outputs.h"
#include "imports/guess.h"
#include "models/stand_in.h"
#include "models/workload.h"

namespace dovetail::cli {

bool is_all_timed(const schedule::Program& program) {
  return std::ranges::all_of(program.ops, [](const schedule::Op& op) {
    return std::holds_alternative<schedule::TimedWork>(op.work) ||
           std::holds_alternative<schedule::CollectiveWork>(op.work);
  });
}

namespace {

// The size of the largest process group over which gradients are reduced.
std::int64_t reduction_ranks(const schedule::Program& program) {
  std::int64_t ranks = 1;
  for (const schedule::Reduction& reduction : program.reductions) {
    ranks = std::max(ranks, program.group(reduction.group).size());
  }
  return ranks;
}

// Where the file is what dovetail import reads: says with which command. `product` is what that writes.
void hint_at_import(const std::string& name, const std::string& what, const std::string& product) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(name, unreadable)) return;
  const std::string format = imports::guess_format_of_file(name);
  if (format.empty()) return;
  throw InputError(name + ": no " + what +
                   " file, but what dovetail import reads: dovetail import " + format + " " + name +
                   " -o " + product + (format == "kineto" ? ", or dovetail diagnose " + name : ""));
}

models::Workload workload_of(const std::string& name, std::optional<std::int64_t> world,
                             const std::string& data_dir) {
  try {
    return models::load_workload(name, world, data_dir);
  } catch (const InputError&) {
    hint_at_import(name, "workload", "step.json");
    throw;
  }
}

// A bad capture gives a bad plan.
void require_valid(const models::Workload& workload, const std::string& name,
                   const InputOptions& options) {
  if (workload.not_valid.empty() || options.force) return;
  throw InputError("workload \"" + name + "\" is not valid: " + workload.not_valid +
                   "; capture again on a quieter machine, or take it with --force");
}

// A workload on the machine of another profile, or of its own.
Inputs on_machine_of_profile(const InputOptions& options) {
  models::Workload profile = workload_of(options.cluster, {}, options.data_dir);
  require_valid(profile, options.cluster, options);
  const auto refuse = [&](const std::string& why) {
    throw InputError("--cluster " + options.cluster +
                     ": the machine of a measured profile: " + why);
  };
  if (options.split.stages > 1) refuse("it has no times for the sends of a pipeline");
  if (!profile.own_costs) refuse("the profile has no all_reduce_alone, no times of collectives");
  models::Workload workload = workload_of(options.workload, options.world, options.data_dir);
  require_valid(workload, options.workload, options);
  if (!is_all_timed(workload.program)) refuse("it has no times for the ops of " + options.workload);
  const std::int64_t ranks = reduction_ranks(profile.program);
  if (reduction_ranks(workload.program) != ranks) {
    refuse("it has tables for " + std::to_string(ranks) + " ranks, " + options.workload +
           " reduces over " + std::to_string(reduction_ranks(workload.program)));
  }
  std::string name = profile.own_costs->machine;
  return {std::move(workload.program), *std::move(profile.own_costs), std::move(name),
          std::move(profile.notes)};
}

Inputs from_own_machine(const InputOptions& options) {
  models::Workload workload = workload_of(options.workload, options.world, options.data_dir);
  require_valid(workload, options.workload, options);
  if (options.split.stages > 1) {
    throw InputError("a pipeline needs a machine: name one with --cluster");
  }
  if (!workload.own_costs) {
    throw InputError("workload \"" + options.workload +
                     "\" has no collective times of its own: name a machine with --cluster");
  }
  const std::string machine = workload.own_costs->machine;
  return {std::move(workload.program), *std::move(workload.own_costs), machine,
          std::move(workload.notes)};
}

}  // namespace

bool is_profile(const std::string& name, const std::string& data_dir) {
  std::error_code unreadable;
  std::string path = name;
  if (!std::filesystem::is_regular_file(path, unreadable)) {
    if (!cluster_file(name, data_dir).path.empty()) return false;  // a shipped cluster comes first
    path = workload_file(name, data_dir).path;
  }
  if (path.empty() || !std::filesystem::is_regular_file(path, unreadable)) return false;
  try {
    return JsonFile(path).root().has("profile");
  } catch (const InputError&) {
    return false;  // who reads it as a cluster will say what is wrong
  }
}

models::Cluster load_cluster(const std::string& name, const std::string& data_dir) {
  try {
    return models::load_cluster(name, data_dir + "/clusters");
  } catch (const InputError&) {
    hint_at_import(name, "cluster", "cluster.json");
    throw;
  }
}

std::int64_t replicas_of(std::int64_t world, schedule::StageSplit split) {
  if (world % split.stages != 0) {
    throw InputError(std::to_string(world) + " ranks cannot be split into " +
                     std::to_string(split.stages) + " stages of equal size; choose --world");
  }
  return world / split.stages;
}

std::string split_stages(schedule::Program& program, const std::string& workload,
                         schedule::StageSplit split) {
  if (split.stages == 1) return {};
  schedule::Rewrite outcome = schedule::assign_stages(std::move(program), split);
  if (const auto* refusal = std::get_if<schedule::Refusal>(&outcome)) {
    throw InputError("workload \"" + workload + "\": no pipeline of " +
                     std::to_string(split.stages) + " stages: " + refusal->reason);
  }
  auto& rewritten = std::get<schedule::Rewritten>(outcome);
  program = std::move(rewritten.program);
  return std::move(rewritten.report);
}

const std::vector<schedule::Collective>& sharding_collectives() {
  static const std::vector<schedule::Collective> kKinds = {schedule::Collective::ReduceScatter,
                                                           schedule::Collective::AllGather};
  return kKinds;
}

void require_one_world(const std::string& workload, std::optional<std::int64_t> world) {
  const std::size_t colon = workload.find(':');
  if (!world || colon == std::string::npos) return;
  const std::string_view given = std::string_view(workload).substr(colon);
  for (const std::string_view option : {":world=", ",world="}) {
    if (given.find(option) == std::string_view::npos) continue;
    throw InputError("workload \"" + workload + "\" and --world " + std::to_string(*world) +
                     " both say how many ranks: give one of them");
  }
}

Inputs load_inputs(const InputOptions& options) {
  require_one_world(options.workload, options.world);
  if (options.cluster.empty()) return from_own_machine(options);
  if (is_profile(options.cluster, options.data_dir)) return on_machine_of_profile(options);
  const models::Cluster cluster = load_cluster(options.cluster, options.data_dir);
  const std::int64_t world =
      options.world ? replicas_of(*options.world, options.split) : cluster.ranks;
  models::Workload workload = workload_of(options.workload, world, options.data_dir);
  require_valid(workload, options.workload, options);
  std::vector<std::string> notes;
  if (cluster.unit_kernel) {
    models::StandIn executable = models::stand_in(workload.program, cluster);
    workload.program = std::move(executable.program);
    if (executable.replaced > 0) {
      notes.push_back(std::to_string(executable.replaced) +
                      " measured ops stand in as repetitions of this machine's unit kernel");
    }
  } else {
    notes = workload.notes;
    if (workload.own_costs) {
      notes.push_back("compute was measured on the machine of " + options.workload +
                      ", collectives are those of " + cluster.name + ": two machines");
    }
  }
  if (options.split.stages > 1) {
    notes.push_back(split_stages(workload.program, options.workload, options.split));
  }
  models::Costs costs = models::costs_for(cluster, workload.program);
  for (std::string& note : models::assumptions(cluster, workload.program)) {
    notes.push_back(std::move(note));
  }
  const auto link = cluster.notes.find("link");
  if (link != cluster.notes.end()) notes.push_back("link: " + link->second);
  const auto measured_for = cluster.notes.find("measured for");
  if (measured_for != cluster.notes.end()) {
    notes.push_back(
        "passes that only plans of other policies hold were not measured; calibrated for " +
        measured_for->second);
  }
  std::vector<std::string> sharding_notes;
  for (const schedule::Collective kind : sharding_collectives()) {
    const std::int64_t ranks = reduction_ranks(workload.program);
    if (ranks == 1) continue;
    std::string note = models::collective_assumption(cluster, {kind, ranks});
    if (!note.empty()) sharding_notes.push_back(std::move(note));
  }
  return {std::move(workload.program),
          std::move(costs),
          cluster.name,
          std::move(notes),
          std::move(sharding_notes),
          link != cluster.notes.end() ? link->second : ""};
}

}  // namespace dovetail::cli
