// Reads a workload and a machine, refuses what cannot go together, and says what is assumed of both.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/inputs.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <variant>

#include "answers/room.h"
#include "base/attempt.h"
#include "base/count.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "models/clusters/gpu_book.h"
#include "models/clusters/stand_in.h"
#include "models/costs/what_if.h"
#include "models/networks/memory.h"
#include "models/networks/model.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "models/workloads/workload.h"
#include "recordings/guess.h"
#include "schedule/sharding.h"

namespace dovetail::predict {

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

// Where the file is what dovetail import reads: says with which command.
void hint_at_import(const std::string& name, const std::string& what) {
  const std::optional<imports::Format> format = imports::guess_format_of_file(name);
  if (!format) return;
  throw InputError(name + ": no " + what + " file, but what dovetail import reads: " +
                   imports::import_to_file(*format, name) +
                   (imports::is_recording(*format) ? ", or dovetail diagnose " + name : ""));
}

// Where the name is that of a job and of no workload: says how to ask about it.
void hint_at_job(const std::string& name, const std::string& data_dir) {
  const std::string model = name.substr(0, name.find(':'));
  const auto has = [&](const std::vector<std::string>& names) {
    return std::ranges::find(names, model) != names.end();
  };
  if (!has(jobs::known_model_names())) return;
  std::string job = name;
  if (!attempt([&] { return jobs::parse_job(name); })) {
    if (has(models::workload_names(data_dir))) return;
    job = model + ":dp_shard=8,gbs=64,seq=8192";
  }
  throw InputError("workload \"" + name + "\": no workload, but what jobs say: --job " + job +
                   " (docs/jobs.md)");
}

models::Workload workload_of(const std::string& name, std::optional<std::int64_t> world,
                             const std::string& data_dir) {
  auto workload = attempt([&] { return models::load_workload(name, world, data_dir); });
  if (workload) return *std::move(workload.value);
  hint_at_import(name, "workload");
  hint_at_job(name, data_dir);
  throw InputError(workload.error);
}

// That of the options, on the ranks that they ask for; else, where it has none of its own, on
// `world`. A file is laid out on those of --world, as a model of the zoo is made for them.
models::Workload workload_of(const InputOptions& options, std::optional<std::int64_t> world) {
  std::optional<schedule::DataParallel> layout = options.layout;
  const bool is_file = !given_or_shipped(options.workload, options.data_dir + "/workloads").empty();
  if (!layout && options.world && is_file && options.split.stages == 1) {
    layout = schedule::DataParallel{.dp = *options.world};
  }
  if (!layout) return workload_of(options.workload, world, options.data_dir);
  models::Workload workload = workload_of(options.workload, std::nullopt, options.data_dir);
  models::lay_out(workload, options.workload, *layout);
  return workload;
}

// A bad capture gives a bad plan.
void require_valid(const models::Workload& workload, const std::string& name,
                   const InputOptions& options) {
  if (workload.not_valid.empty() || options.force) return;
  throw InputError("workload \"" + name + "\" is not valid: " + workload.not_valid +
                   "; capture again on a quieter machine, or take it with --force");
}

// What must be known of the workload wherever it runs.
schedule::PlanSummary summary_of(const InputOptions& options, const models::Workload& workload) {
  schedule::PlanSummary summary{.workload = options.workload, .cluster = {}};
  summary.what_if = to_string(options.what_if);
  summary.notes = workload.notes;
  if (workload.own_costs) summary.measured_on = workload.own_costs->machine;
  if (!models::is_shipped_cluster(options.cluster, options.data_dir + "/clusters")) {
    summary.cluster_file = options.cluster;
  }
  return summary;
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
  models::Workload workload = workload_of(options, options.world);
  require_valid(workload, options.workload, options);
  if (!is_all_timed(workload.program)) refuse("it has no times for the ops of " + options.workload);
  const std::int64_t ranks = reduction_ranks(profile.program);
  if (reduction_ranks(workload.program) != ranks) {
    refuse("it has tables for " + std::to_string(ranks) + " ranks, " + options.workload +
           " reduces over " + std::to_string(reduction_ranks(workload.program)));
  }
  schedule::PlanSummary summary = summary_of(options, workload);
  summary.cluster = profile.own_costs->machine;
  models::reprice(*profile.own_costs, workload.program);
  ask_of_profile(options.what_if, *profile.own_costs);
  profile.notes.insert(profile.notes.end(), profile.own_notes.begin(), profile.own_notes.end());
  return {.program = std::move(workload.program),
          .machine = {.costs = *std::move(profile.own_costs), .notes = std::move(profile.notes)},
          .summary = std::move(summary),
          .recorded = std::move(workload.recorded)};
}

Inputs from_own_machine(const InputOptions& options) {
  models::Workload workload = workload_of(options, options.world);
  require_valid(workload, options.workload, options);
  if (options.split.stages > 1) {
    throw InputError("a pipeline needs a machine: name one with --cluster");
  }
  if (!workload.own_costs) {
    throw InputError("workload \"" + options.workload +
                     "\" has no collective times of its own: name a machine with --cluster");
  }
  schedule::PlanSummary summary = summary_of(options, workload);
  summary.cluster = workload.own_costs->machine;
  ask_of_profile(options.what_if, *workload.own_costs);
  if (workload.own_bounds) {
    apply(options.what_if, workload.own_bounds->cheap);
    apply(options.what_if, workload.own_bounds->dear);
  }
  return {
      .program = std::move(workload.program),
      .machine = {.costs = *std::move(workload.own_costs), .notes = std::move(workload.own_notes)},
      .summary = std::move(summary),
      .recorded = std::move(workload.recorded),
      .bounds = std::move(workload.own_bounds)};
}

// The compute of another machine in place of the cluster's own, measured or not, and what collectives take from it.
void take_gpu(const std::string& name, const std::string& data_dir, models::Cluster& cluster) {
  if (name.ends_with(".json") && models::is_gpu_book(name)) {
    return models::take(models::load_gpu_book(name), cluster);
  }
  const models::Cluster other = models::load_cluster(name, data_dir + "/clusters");
  if (cluster.backend != models::BackendKind::Cuda || !other.compute) {
    throw InputError("--what-if gpu: expected two machines with GPUs, found " + cluster.name +
                     " and " + other.name);
  }
  cluster.compute = other.compute;
  cluster.kernels.clear();
  cluster.passes.clear();
  cluster.copy = other.copy;
  cluster.contention = other.contention;
}

}  // namespace

std::string given_or_shipped(const std::string& name, const std::string& folder) {
  if (name.find('/') != std::string::npos || name.ends_with(".json")) return name;
  std::string shipped = folder + "/" + name + ".json";
  std::error_code unreadable;
  if (std::filesystem::exists(shipped, unreadable)) return shipped;
  return std::filesystem::is_regular_file(name, unreadable) ? name : "";
}

bool is_profile(const std::string& name, const std::string& data_dir) {
  std::error_code unreadable;
  std::string path = name;
  if (!std::filesystem::is_regular_file(path, unreadable)) {
    if (!given_or_shipped(name, data_dir + "/clusters").empty())
      return false;  // a shipped cluster comes first
    path = given_or_shipped(name, data_dir + "/workloads");
  }
  if (path.empty() || !std::filesystem::is_regular_file(path, unreadable)) return false;
  // Of none that can be read, who reads it as a cluster will say what is wrong.
  return attempt([&] { return JsonFile(path).root().has("profile"); }).value.value_or(false);
}

models::Cluster load_cluster(const std::string& name, const std::string& data_dir,
                             const models::WhatIf& what_if) {
  auto loaded = attempt([&] { return models::load_cluster(name, data_dir + "/clusters"); });
  if (!loaded) {
    hint_at_import(name, "cluster");
    throw InputError(loaded.error);
  }
  models::Cluster cluster = *std::move(loaded.value);
  if (!what_if.gpu.empty()) take_gpu(what_if.gpu, data_dir, cluster);
  if (what_if.world && cluster.topology) {
    cluster.ranks = std::max(cluster.ranks, *what_if.world);
  }
  if (what_if.changes_topology() && !cluster.topology) {
    throw InputError("--what-if network=, nvlink=: cluster " + cluster.name +
                     " does not say which ranks share a node (topology): link= scales all links");
  }
  cluster.what_if = what_if;
  return cluster;
}

void require_shapes(const models::WhatIf& what_if, const schedule::Program& program) {
  if (what_if.gpu.empty()) return;
  const auto timed = std::ranges::find_if(
      program.ops, [](const schedule::Op& op) { return schedule::is_timed(op.work); });
  if (timed == program.ops.end()) return;
  throw InputError("--what-if gpu: op \"" + timed->name +
                   "\" is a measured time, which says nothing of another GPU; compute=1.3x "
                   "makes all of them so much faster");
}

void ask_of_profile(const models::WhatIf& what_if, models::Costs& costs) {
  if (!what_if.gpu.empty() || what_if.world) {
    throw InputError("--what-if " + std::string(what_if.world ? "world" : "gpu") +
                     ": the machine of a measured profile has times of its own ranks and GPU "
                     "only; name a --cluster");
  }
  if (what_if.changes_topology()) {
    throw InputError(
        "--what-if network=, nvlink=: these costs were recorded whole: link= scales all links");
  }
  apply(what_if, costs);
}

jobs::Job on_world(jobs::Job job, const models::WhatIf& what_if) {
  if (!what_if.world) return job;
  const std::int64_t now = job.layout.world();
  std::int64_t& degree = job.layout.dp > 1 ? job.layout.dp : job.layout.dp_shard;
  const std::int64_t rest = now / degree;
  if (*what_if.world % rest != 0) {
    throw InputError("--what-if world: expected a multiple of " + std::to_string(rest) +
                     ", the job's ranks without its data parallelism, found " +
                     std::to_string(*what_if.world));
  }
  degree = *what_if.world / rest;
  jobs::complete(job, "--what-if world");
  return job;
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

schedule::DataParallel parse_layout(const std::string& text) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  schedule::DataParallel degrees;
  std::set<std::string> seen;
  std::istringstream list(text);
  for (std::string option; std::getline(list, option, ',');) {
    const std::size_t equals = option.find('=');
    const std::string key = option.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
    if (key != "dp" && key != "dp_shard") {
      throw InputError(
          "expected dp=N, dp_shard=N or both, found \"" + option +
          "\": a workload is what one rank computes; --job divides a model by tp, cp, ep and pp");
    }
    std::int64_t& degree = key == "dp" ? degrees.dp : degrees.dp_shard;
    const char* const end = value.data() + value.size();
    const auto [at, error] = std::from_chars(value.data(), end, degree);
    if (error != std::errc() || at != end || degree < 1 || degree > kMostRanks ||
        !seen.insert(key).second) {
      throw InputError(key + ": expected a whole number from 1 to 1048576, once, found \"" + text +
                       "\"");
    }
  }
  if (seen.empty()) throw InputError("expected dp=N, dp_shard=N or both, found \"\"");
  if (degrees.world() > kMostRanks) {
    throw InputError(text + ": expected at most 1048576 ranks in all");
  }
  return degrees;
}

const std::vector<schedule::Collective>& sharding_collectives() {
  static const std::vector<schedule::Collective> kKinds = {schedule::Collective::ReduceScatter,
                                                           schedule::Collective::AllGather};
  return kKinds;
}

void require_room(const jobs::Job& job, const models::Cluster& cluster) {
  if (job.layout.world() <= cluster.ranks || models::is_family(cluster)) return;
  throw InputError("the job has " + std::to_string(job.layout.world()) + " ranks, cluster " +
                   cluster.name + " has " + std::to_string(cluster.ranks));
}

std::int64_t idle_ranks(const jobs::Job& job, const models::Cluster& cluster) {
  if (models::is_family(cluster)) return 0;
  const std::int64_t ranks = cluster.what_if.world.value_or(cluster.ranks);
  return std::max<std::int64_t>(0, ranks - job.layout.world());
}

std::string idle_note(const jobs::Job& job, std::int64_t idle) {
  return counted(idle, "rank") + " of the machine " + (idle == 1 ? "is" : "are") +
         " idle: the job has " + std::to_string(job.layout.world());
}

void require_one_world(const std::string& workload, std::optional<std::int64_t> world,
                       const std::optional<schedule::DataParallel>& layout,
                       const models::WhatIf& what_if) {
  std::vector<std::string> said;
  if (workload.find(":world=") != std::string::npos ||
      workload.find(",world=") != std::string::npos) {
    said.push_back("workload \"" + workload + "\"");
  }
  if (world) said.push_back("--world " + std::to_string(*world));
  if (layout) said.push_back("--layout " + to_string(*layout));
  if (what_if.world) said.push_back("--what-if world=" + std::to_string(*what_if.world));
  if (said.size() < 2) return;
  throw InputError(said[0] + " and " + said[1] + " both say how many ranks: give one of them");
}

namespace {

// A job has its stages and its world.
Inputs load_job(const InputOptions& options) {
  if (options.cluster.empty()) throw InputError("a job needs a machine: name one with --cluster");
  if (options.world) throw InputError("--world: a job says how many ranks it has");
  if (options.layout) throw InputError("--layout: a job says its layout");
  const jobs::Job job = on_world(*options.job, options.what_if);
  Inputs inputs{.program = jobs::program_of(job), .machine = {}, .summary = {}};
  models::Cluster cluster = load_cluster(options.cluster, options.data_dir, options.what_if);
  require_room(job, cluster);
  inputs.summary = summary_of(options, {});
  inputs.summary.workload = inputs.program.name;  // as traces of a run have it
  inputs.summary.notes = jobs::notes_on(job);
  if (const std::int64_t idle = idle_ranks(job, cluster); idle > 0) {
    inputs.summary.notes.insert(inputs.summary.notes.begin(), idle_note(job, idle));
  }
  const std::vector<jobs::StageMemory> stages = jobs::memory_of(job);
  inputs.summary.memory = stages[jobs::fullest(stages)];
  inputs.summary.cluster = cluster.name;
  inputs.machine.costs = models::costs_for(cluster, inputs.program);
  inputs.machine.cluster = std::move(cluster);
  inputs.summary.link = inputs.machine.link();
  return inputs;
}

}  // namespace

Inputs load_inputs(const InputOptions& given) {
  if (given.job) return load_job(given);
  require_one_world(given.workload, given.world, given.layout, given.what_if);
  InputOptions options = given;
  if (given.what_if.world && !given.cluster.empty()) options.world = given.what_if.world;
  if (options.cluster.empty()) return from_own_machine(options);
  if (is_profile(options.cluster, options.data_dir)) return on_machine_of_profile(options);
  models::Cluster cluster = load_cluster(options.cluster, options.data_dir, options.what_if);
  const std::int64_t world =
      options.world ? replicas_of(*options.world, options.split) : cluster.ranks;
  models::Workload workload = workload_of(options, world);
  require_valid(workload, options.workload, options);
  require_shapes(options.what_if, workload.program);
  schedule::PlanSummary summary = summary_of(options, workload);
  if (cluster.unit_kernel) {
    models::StandIn executable = models::stand_in(workload.program, cluster);
    workload.program = std::move(executable.program);
    summary.measured_on.clear();
    summary.notes.clear();
    if (executable.replaced > 0) {
      summary.notes.push_back(
          std::to_string(executable.replaced) +
          " measured ops stand in as repetitions of this machine's unit kernel");
    }
  }
  if (options.split.stages > 1) {
    summary.notes.push_back(split_stages(workload.program, options.workload, options.split));
  }
  summary.cluster = cluster.name;
  models::Costs costs = models::costs_for(cluster, workload.program);
  Machine machine = {.costs = std::move(costs), .cluster = std::move(cluster)};
  summary.link = machine.link();
  return {.program = std::move(workload.program),
          .machine = std::move(machine),
          .summary = std::move(summary),
          .recorded = std::move(workload.recorded)};
}

namespace {

std::string note_of(const models::Cluster& cluster, const std::string& key) {
  const auto note = cluster.notes.find(key);
  return note == cluster.notes.end() ? "" : note->second;
}

// Parameters and gradients of a rank where nothing divides them; stages of a pipeline hold parts.
std::string undivided_note(const Machine& machine, const schedule::Program& program) {
  const std::optional<Bytes> capacity = machine.capacity();
  if (!capacity || program.stages > 1) return "";
  Bytes held;
  for (const schedule::Tensor& tensor : program.tensors) {
    const bool stays = tensor.kind == schedule::TensorKind::Parameter ||
                       tensor.kind == schedule::TensorKind::Gradient;
    if (stays) held += tensor.bytes();
  }
  if (held <= *capacity) return "";
  return "parameters and gradients take " + to_string(held) +
         " on each rank unless they are sharded; a device has " + to_string(*capacity);
}

// What the model assumes of a schedule with several communication streams; "" of one.
std::string stream_note(const schedule::Schedule& schedule) {
  std::set<std::int32_t> streams;
  const auto count = [&](const schedule::Placement& placement) {
    const auto* comm = std::get_if<schedule::CommStream>(&placement.stream);
    if (comm != nullptr) streams.insert(comm->index);
  };
  for (const schedule::Bucket& bucket : schedule.buckets) count(bucket);
  for (const schedule::OpPlacement& placement : schedule.collectives) count(placement);
  if (streams.size() < 2) return "";
  return std::to_string(streams.size()) +
         " communication streams share the link: latencies pass side by side, bytes do not";
}

// What holds of any schedule whose gradients travel by these collectives.
std::vector<std::string> common_notes(const Machine& machine, const schedule::Program& program,
                                      const schedule::PlanSummary& summary,
                                      const std::vector<schedule::Collective>& used) {
  std::vector<std::string> notes = summary.notes;
  if (!summary.what_if.empty()) notes.insert(notes.begin(), "what if: " + summary.what_if);
  const auto add = [&notes](std::string note) {
    const bool known = note.empty() || std::ranges::count(notes, note) > 0;
    if (!known) notes.push_back(std::move(note));
  };
  const std::string& name = machine.costs.machine;
  const bool stands_in = machine.cluster && machine.cluster->unit_kernel;
  if (!summary.measured_on.empty() && summary.measured_on != name && !stands_in) {
    add("compute was measured on the machine of " + summary.workload +
        ", collectives are those of " + name + ": two machines");
  }
  for (const std::string& note : machine.notes) add(note);
  if (!machine.cluster) return notes;
  for (std::string& note : models::assumptions(*machine.cluster, program, used)) {
    add(std::move(note));
  }
  if (!machine.link().empty()) add("link: " + machine.link());
  if (const std::string policies = note_of(*machine.cluster, "measured for"); !policies.empty()) {
    add("passes that only plans of other policies hold were not measured; calibrated for " +
        policies);
  }
  return notes;
}

}  // namespace

std::optional<Bytes> Machine::capacity() const {
  const bool is_known = cluster && cluster->compute;
  return is_known ? cluster->compute->capacity : std::nullopt;
}

std::string Machine::link() const { return cluster ? note_of(*cluster, "link") : ""; }

std::vector<std::string> notes_on(const Machine& machine, const schedule::Program& program,
                                  const schedule::PlanSummary& summary,
                                  const std::vector<schedule::Collective>& used) {
  std::vector<std::string> notes = common_notes(machine, program, summary, used);
  if (std::string note = undivided_note(machine, program); !note.empty()) {
    notes.push_back(std::move(note));
  }
  return notes;
}

std::vector<std::string> notes_on(const Machine& machine, const schedule::Program& program,
                                  const schedule::PlanSummary& summary,
                                  const schedule::Schedule& schedule) {
  std::vector<std::string> notes = common_notes(
      machine, program, summary,
      is_sharded(schedule) ? sharding_collectives() : std::vector{schedule::Collective::AllReduce});
  if (const auto shortage = shortage_of(machine.capacity(), program, summary, schedule)) {
    notes.insert(notes.begin(), to_string(*shortage));
  }
  if (std::string note = stream_note(schedule); !note.empty()) notes.push_back(std::move(note));
  return notes;
}

}  // namespace dovetail::predict
