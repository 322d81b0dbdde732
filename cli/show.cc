// Printing Programs, Schedules, commands, and what there is to choose from.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/show.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/inputs.h"
#include "cli/passes.h"
#include "cli/text.h"
#include "models/cluster.h"
#include "models/workload.h"
#include "models/zoo.h"
#include "schedule/lower.h"
#include "schedule/plan_json.h"
#include "schedule/policies.h"
#include "schedule/print.h"
#include "schedule/verify.h"

namespace dovetail::cli {
namespace {

// Throws InputError for what was given and would be ignored.
void require_effects(const ShowOptions& options, bool takes_inputs) {
  const auto refuse = [&](std::string_view flag, bool given, const std::string& why) {
    if (!given) return;
    throw InputError("show " + options.what + ": " + std::string(flag) + " has no effect " + why);
  };
  const std::string why = takes_inputs ? "beside --plan" : "here";
  if (!takes_inputs) refuse("--plan", !options.plan.empty(), why);
  if (takes_inputs && options.plan.empty()) return;
  refuse("--workload", !options.workload.empty(), why);
  refuse("--policy", !options.policy.empty(), why);
  refuse("--world", options.world.has_value(), why);
}

schedule::Plan load(const ShowOptions& options) {
  if (!options.plan.empty()) return schedule::read_plan(options.plan);
  if (options.workload.empty()) {
    throw InputError("show " + options.what +
                     ": name a plan with --plan or a workload with --workload");
  }
  const schedule::PolicySpec spec =
      schedule::parse_policy(options.policy.empty() ? "torch-ddp" : options.policy);
  const schedule::StageSplit split{.stages = spec.stages, .chunks = spec.chunks};
  std::optional<std::int64_t> world = options.world;
  if (world) world = replicas_of(*world, split);
  models::Workload workload = models::load_workload(options.workload, world, options.data_dir);
  split_stages(workload.program, options.workload, split);
  schedule::Plan plan{.program = std::move(workload.program), .schedule = {}, .summary = {}};
  if (options.what == "program") return plan;
  if (spec.kind == schedule::PolicyKind::Exact) {
    throw InputError("show: policy exact needs a machine: make a plan first, then show --plan");
  }
  plan.schedule = schedule::make_schedule(plan.program, spec);
  return plan;
}

void show_list(const std::vector<std::string>& names, std::ostream& out) {
  for (const std::string& name : names) out << name << '\n';
}

// Known models with the sizes that hold where no option is given, then measured steps.
void show_workloads(const ShowOptions& options, std::ostream& out) {
  TextTable table({"workload", "parameters", "gradients", "batch", "sequence"});
  const std::vector<models::ZooEntry> known = models::zoo_entries();
  for (const models::ZooEntry& entry : known) {
    table.add({entry.name, fixed(static_cast<double>(entry.parameters) / 1e6, 1) + " M",
               std::to_string(entry.gradients), std::to_string(entry.batch),
               entry.sequence ? std::to_string(*entry.sequence) : "-"});
  }
  for (const std::string& name : models::workload_names(options.data_dir)) {
    if (std::ranges::find(known, name, &models::ZooEntry::name) != known.end()) continue;
    table.add({name, "measured", "", "", ""});
  }
  table.print(out);
  out << "batch: samples per rank, sequence: tokens per sample, both unless an option says "
         "otherwise; "
         "elements are f32\nexample: resnet50:batch=256,dtype=bf16\n";
}

// Each policy, what it is for, and the options that it takes.
void show_policies(std::ostream& out) {
  const std::vector<schedule::PolicyHelp> help = schedule::policy_help();
  for (const schedule::PolicyHelp& policy : help) {
    out << std::left << std::setw(23) << policy.name << policy.purpose << '\n';
  }
  out << "\noptions, as in " << help.back().defaults << '\n';
  for (const schedule::PolicyHelp& policy : help) {
    if (policy.options.empty()) continue;
    out << std::left << std::setw(22) << policy.name;
    for (const std::string& option : policy.options) out << ' ' << option;
    out << '\n';
  }
}

// What a plan decided, and what lowering made of it.
void show_plan(const std::string& path, std::ostream& out) {
  const schedule::Plan plan = schedule::read_plan(path);
  schedule::print_schedule(out, plan.program, plan.schedule);
  const schedule::Lowered lowered = schedule::lower(plan.program, plan.schedule);
  out << "passes\n";
  for (const std::string& line : describe_passes(plan, lowered.report)) {
    out << "  " << line << '\n';
  }
  const std::vector<schedule::Problem> wrong =
      schedule::verify(plan.program, lowered.program, plan.schedule.merge);
  out << (wrong.empty() ? "verified: legal\n" : "illegal\n");
  for (const schedule::Problem& problem : wrong) out << "  " << problem.message << '\n';
}

constexpr std::array<std::string_view, 3> kOfPlans = {"program", "schedule", "commands"};
constexpr std::array<std::string_view, 3> kLists = {"workloads", "clusters", "policies"};

bool is_one_of(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

void show(const ShowOptions& options, std::ostream& out) {
  const bool of_plan = is_one_of(kOfPlans, options.what);
  require_effects(options, of_plan);
  if (!of_plan && !is_one_of(kLists, options.what)) {
    show_plan(options.what, out);
  } else if (options.what == "workloads") {
    show_workloads(options, out);
  } else if (options.what == "clusters") {
    show_list(models::cluster_names(options.data_dir + "/clusters"), out);
  } else if (options.what == "policies") {
    show_policies(out);
  } else if (options.what == "program") {
    schedule::print_program(out, load(options).program);
  } else if (options.what == "schedule") {
    const schedule::Plan plan = load(options);
    schedule::print_schedule(out, plan.program, plan.schedule);
  } else {
    const schedule::Plan plan = load(options);
    const schedule::Lowered lowered = schedule::lower(plan.program, plan.schedule);
    schedule::print_commands(out, lowered.program);
    for (const std::string& line : lowered.report) out << "  " << line << '\n';
    for (const schedule::Problem& problem :
         schedule::verify(plan.program, lowered.program, plan.schedule.merge)) {
      out << "  illegal: " << problem.message << '\n';
    }
  }
}

}  // namespace dovetail::cli
