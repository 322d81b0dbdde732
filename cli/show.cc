// `dovetail show`: finds out what its argument means (a list, a name, a file, a part of a plan)
// and prints it.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/show.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <set>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "base/table.h"
#include "cli/command_text.h"
#include "cli/environment.h"
#include "cli/passes.h"
#include "cli/show_facts.h"
#include "cli/show_schemas.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "models/clusters/cluster.h"
#include "models/networks/zoo.h"
#include "models/workloads/workload.h"
#include "recordings/guess.h"
#include "schedule/lower/lower.h"
#include "schedule/plan_json.h"
#include "schedule/policies/combinations.h"
#include "schedule/policies/policies.h"
#include "schedule/print.h"
#include "schedule/program_json.h"
#include "schedule/verify/verify.h"
#include "traces/trace_json.h"

namespace dovetail::cli {
namespace {

using nlohmann::ordered_json;

// Something, in all ways.
struct Shown {
  std::function<void(std::ostream&)> print;
  std::function<std::string()> json;
  std::function<Table()> table = {};  // nothing: what there is in the JSON
};

// Throws InputError for what was given and would be ignored.
void require_effects(const ShowOptions& options, bool takes_inputs) {
  const auto refuse = [&](std::string_view flag, bool given, const std::string& why) {
    if (!given) return;
    throw InputError("show " + options.what + ": " + std::string(flag) + " has no effect " + why);
  };
  const std::string why = takes_inputs ? "beside --plan" : "here";
  if (!takes_inputs) refuse("--plan", !options.plan.empty(), why);
  if (options.what == "program" && options.plan.empty()) {
    refuse("--policy", !options.policy.empty(), "on the program: show schedule or commands");
  }
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
  const schedule::Policy spec =
      frameworks::parse_policy(options.policy.empty() ? "torch-ddp" : options.policy);
  const schedule::StageSplit split = schedule::split_of(spec);
  predict::require_one_world(options.workload, options.world);
  std::optional<std::int64_t> world = options.world;
  if (world) world = predict::replicas_of(*world, split);
  models::Workload workload = models::load_workload(options.workload, world, options.data_dir);
  predict::split_stages(workload.program, options.workload, split);
  schedule::Plan plan{.program = std::move(workload.program), .schedule = {}, .summary = {}};
  plan.summary.workload = options.workload;
  if (options.what == "program") return plan;
  if (schedule::needs_costs(spec)) {
    throw InputError("show: policy " + schedule::name(spec) +
                     " needs a machine: make a plan first, then show --plan");
  }
  plan.schedule = schedule::make_schedule(plan.program, spec);
  return plan;
}

std::string list_json(const std::string& what, const Table& table) {
  const ordered_json document = {
      {"schema", "dovetail.list/1"}, {"kind", "list"}, {"what", what}, {"rows", rows_json(table)}};
  return document.dump(1) + "\n";
}

Shown shown_rows(const std::string& what, const Table& table,
                 const std::function<void(std::ostream&)>& print) {
  return {print, [=] { return list_json(what, table); }, [=] { return table; }};
}

// A known model with the sizes that hold where no option is given, or a measured step.
struct WorkloadRow {
  std::string name;
  std::optional<models::ZooEntry> model;
};

Table workload_table(const ShowOptions& options) {
  std::vector<WorkloadRow> rows;
  for (const models::ZooEntry& entry : models::zoo_entries()) rows.push_back({entry.name, entry});
  for (const std::string& name : models::workload_names(options.data_dir)) {
    if (std::ranges::find(rows, name, &WorkloadRow::name) == rows.end())
      rows.push_back({name, std::nullopt});
  }
  const auto size = [](auto models::ZooEntry::*of) {
    return [of](const WorkloadRow& row) {
      return row.model ? Cell((*row.model).*of) : Cell().shown_as("");
    };
  };
  return table_of<WorkloadRow>(
      {{{"workload", "workload"}, &WorkloadRow::name},
       {{"kind"}, [](const WorkloadRow& row) { return row.model ? "model" : "measured"; }},
       {{"parameters", "parameters"},
        [](const WorkloadRow& row) {
          if (!row.model) return Cell().shown_as("measured");
          return Cell(row.model->parameters)
              .shown_as(fixed(static_cast<double>(row.model->parameters) / 1e6, 1) + " M");
        }},
       {{"gradients", "gradients"}, size(&models::ZooEntry::gradients)},
       {{"batch", "batch"}, size(&models::ZooEntry::batch)},
       {{"sequence", "sequence"}, size(&models::ZooEntry::sequence)},
       {{"dtype"}, [](const WorkloadRow& row) { return row.model ? Cell("f32") : Cell(); }}},
      rows);
}

void print_workloads(const Table& table, std::ostream& out) {
  print_table(out, table);
  print_text(out,
             "batch: samples per rank, sequence: tokens per sample, both unless an option says "
             "otherwise; elements are f32");
  print_text(out, "example: resnet50:batch=256,dtype=bf16");
}

std::vector<models::Cluster> shipped_clusters(const ShowOptions& options) {
  std::vector<models::Cluster> clusters;
  for (const std::string& name : models::cluster_names(options.data_dir + "/clusters")) {
    clusters.push_back(models::load_cluster(name, options.data_dir + "/clusters"));
  }
  return clusters;
}

std::string kinds_of_collectives(const models::Cluster& cluster) {
  std::string kinds;
  std::set<schedule::Collective> seen;
  for (const models::CollectiveSeries& series : cluster.collectives) {
    if (!seen.insert(series.collective).second) continue;
    kinds += (kinds.empty() ? "" : ", ") + std::string(to_string(series.collective));
  }
  return kinds;
}

Table cluster_table(const ShowOptions& options) {
  using models::Cluster;
  return table_of<Cluster>(
      {{{"cluster", "cluster"},
        [](const Cluster& one) {
          return Cell(one.name).shown_as(one.name + (models::is_family(one) ? "xN" : ""));
        }},
       {{"ranks", "ranks"},
        [](const Cluster& one) {
          return models::is_family(one) ? Cell(one.ranks).shown_as("N") : Cell(one.ranks);
        }},
       {{"node_ranks"},
        [](const Cluster& one) {
          return one.topology ? Cell(one.topology->node_ranks()) : Cell();
        }},
       {{"backend"}, &Cluster::backend},
       {{"measured", "measured"}, kinds_of_collectives},
       {{"origin"}, &Cluster::origin}},
      shipped_clusters(options));
}

void print_clusters(const Table& table, std::ostream& out) {
  print_table(out, table);
  out << "xN: any number of ranks in one node, or whole nodes, such as h100x64\n"
         "dovetail show NAME tells where its figures come from\n"
         "your own: dovetail calibrate, or dovetail import nccl-tests LOG -o "
         "here.json\n";
}

// A name, and beside it a text in lines of the terminal's width.
void print_named(std::ostream& out, const std::string& name, const std::string& text) {
  constexpr int kNameWidth = 23;
  out << std::left << std::setw(kNameWidth) << name << wrapped(text, kNameWidth, text_width())
      << '\n';
}

// Each policy, what it is for, and the options that it takes.
void print_policies(std::ostream& out) {
  const std::vector<schedule::PolicyHelp> help = schedule::policy_help(frameworks::presets());
  for (const schedule::PolicyHelp& policy : help) {
    print_named(out, policy.name, policy.purpose);
  }
  out << '\n';
  print_text(out, "options, as in " + help.back().defaults);
  for (const schedule::PolicyHelp& policy : help) {
    if (policy.options.empty()) continue;
    std::string options;
    for (const std::string& option : policy.options) {
      options += (options.empty() ? "" : " ") + option;
    }
    print_named(out, policy.name, options);
  }
  out << '\n';
  print_text(out,
             "A + joins policies that decide different things, as in "
             "sharded+threshold:cap=8MiB. Not together:");
  for (const schedule::Combination& refused : schedule::refused_combinations()) {
    print_text(out,
               std::string("  ") + std::string(to_string(refused.one)) + " with " +
                   std::string(to_string(refused.other)) + ": " + std::string(refused.reason),
               4);
  }
}

// All, or that of one name.
Table policy_table(const std::string& only) {
  using schedule::PolicyHelp;
  std::vector<PolicyHelp> rows = schedule::policy_help(frameworks::presets());
  std::erase_if(rows, [&](const PolicyHelp& row) { return !only.empty() && row.name != only; });
  return table_of<PolicyHelp>(
      {{{"policy", "policy"}, &PolicyHelp::name},
       {{"purpose", "purpose", Unit::Own, {}, 0, Align::Left}, &PolicyHelp::purpose},
       {{"defaults", "in full", Unit::Own, {}, 0, Align::Left}, &PolicyHelp::defaults},
       {{"options", "options", Unit::Own, {}, 0, Align::Left}, &PolicyHelp::options}},
      rows);
}

// What a plan decided, and what lowering made of it.
void print_plan(const schedule::Plan& plan, std::ostream& out) {
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

void print_plan_commands(const schedule::Plan& plan, std::ostream& out) {
  const schedule::Lowered lowered = schedule::lower(plan.program, plan.schedule);
  schedule::print_commands(out, lowered.program);
  for (const schedule::PassLine& line : lowered.report) out << "  " << to_string(line) << '\n';
  for (const schedule::Problem& problem :
       schedule::verify(plan.program, lowered.program, plan.schedule.merge)) {
    out << "  illegal: " << problem.message << '\n';
  }
}

// Whose lines are its rows.
Shown shown_lines(const std::string& what, const std::function<void(std::ostream&)>& print) {
  std::stringstream text;
  print(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  const Table table = table_of<std::string>(
      {{{"text", what}, [](const std::string& line) { return line; }}}, lines);
  return shown_rows(what, table, print);
}

Shown shown_plan(const schedule::Plan& plan) {
  return {[plan](std::ostream& out) { print_plan(plan, out); },
          [plan] { return schedule::plan_to_json(plan); }};
}

Shown shown_program(const schedule::Program& program, const std::string& name) {
  return {[program, name](std::ostream& out) { print_model(out, program, name); },
          [program] { return schedule::program_to_json(program) + "\n"; }};
}

Shown shown_machine(const models::Cluster& cluster) {
  return {[cluster](std::ostream& out) { print_machine(out, cluster); },
          [cluster] { return models::cluster_to_json(cluster); }};
}

Shown shown_of_plan(const ShowOptions& options) {
  const schedule::Plan plan = load(options);
  if (options.what == "program") {
    return {[plan](std::ostream& out) { schedule::print_program(out, plan.program); },
            shown_program(plan.program, "").json};
  }
  if (options.what == "schedule") {
    return {
        [plan](std::ostream& out) { schedule::print_schedule(out, plan.program, plan.schedule); },
        [plan] { return schedule::plan_to_json(plan); }};
  }
  return shown_lines("commands", [plan](std::ostream& out) { print_plan_commands(plan, out); });
}

Table schema_table() {
  return table_of<std::string>(
      {{{"schema", "schema"}, [](const std::string& name) { return name; }},
       {{"title", "of", Unit::Own, {}, 0, Align::Left},
        [](const std::string& name) {
          const auto title = schema_named(name)["title"].get<std::string>();
          return Cell(title).shown_as(title.substr(title.find(": ") + 2));
        }}},
      schema_names());
}

void print_schemas(std::ostream& out) {
  print_table(out, schema_table());
  print_text(out, "example: dovetail show dovetail.plan/1; with --json: a JSON Schema");
}

// Lists of names.
std::optional<Shown> shown_list(const ShowOptions& options) {
  const std::string& what = options.what;
  if (what == "workloads") {
    const Table table = workload_table(options);
    return shown_rows(what, table, [table](std::ostream& out) { print_workloads(table, out); });
  }
  if (what == "clusters") {
    const Table table = cluster_table(options);
    return shown_rows(what, table, [table](std::ostream& out) { print_clusters(table, out); });
  }
  if (what == "policies") return shown_rows(what, policy_table(""), print_policies);
  if (what == "schemas") return shown_rows(what, schema_table(), print_schemas);
  return std::nullopt;
}

// By the schema that the file names.
Shown shown_file(const ShowOptions& options) {
  if (const auto format = imports::guess_format_of_file(options.what)) {
    throw InputError(options.what + ": " + imports::import_command(*format, options.what) +
                     " shows what it holds");
  }
  const std::string text = read_file(options.what);
  const JsonFile file(options.what, text);
  JsonObject root = file.root();
  const std::string schema = root.has("schema") ? root.string("schema") : "";
  if (schema.starts_with("dovetail.cluster/")) {
    return shown_machine(models::load_cluster(options.what, options.data_dir + "/clusters"));
  }
  if (schema.starts_with("dovetail.trace/")) {
    const traces::Trace trace = traces::load_trace(options.what);
    return {[trace](std::ostream& out) { print_trace(out, trace); },
            [trace] { return traces::to_json(trace); }};
  }
  if (schema.starts_with("dovetail.program/") || root.has("profile")) {
    const std::string path =
        options.what.find('/') == std::string::npos ? "./" + options.what : options.what;
    return shown_program(models::load_workload(path, {}, options.data_dir).program, options.what);
  }
  return shown_plan(schedule::parse_plan(options.what, text));
}

std::string before_colon(const std::string& text) { return text.substr(0, text.find(':')); }

template <class Names>
bool contains(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != std::ranges::end(names);
}

// One of the things that lists name.
std::optional<Shown> shown_name(const ShowOptions& options) {
  const std::string& what = options.what;
  const std::string folder = options.data_dir + "/clusters";
  if (models::is_shipped_cluster(what, folder)) {
    return shown_machine(models::load_cluster(what, folder));
  }
  if (contains(models::workload_names(options.data_dir), before_colon(what))) {
    predict::require_one_world(what, options.world);
    return shown_program(models::load_workload(what, options.world, options.data_dir).program,
                         what);
  }
  if (contains(schema_names(), what)) {
    const ordered_json schema = schema_named(what);
    return Shown{[schema](std::ostream& out) { print_schema(schema, out); },
                 [schema] { return schema.dump(1) + "\n"; }};
  }
  for (const schedule::PolicyHelp& policy : schedule::policy_help(frameworks::presets())) {
    if (policy.name != before_colon(what)) continue;
    const schedule::Policy spec = frameworks::parse_policy(what);
    return shown_rows("policies", policy_table(policy.name),
                      [spec, policy](std::ostream& out) { print_policy(out, spec, policy); });
  }
  return std::nullopt;
}

constexpr std::array<std::string_view, 4> kLists = {"workloads", "clusters", "policies", "schemas"};
constexpr std::array<std::string_view, 3> kOfPlans = {"program", "schedule", "commands"};

// Whatever `show` has a name for, but clusters.
std::vector<std::string> names_without_clusters(const ShowOptions& options) {
  std::vector<std::string> known(kLists.begin(), kLists.end());
  known.insert(known.end(), kOfPlans.begin(), kOfPlans.end());
  for (const std::string& name : schema_names()) known.push_back(name);
  for (const std::string& name : models::workload_names(options.data_dir)) known.push_back(name);
  for (const schedule::PolicyHelp& policy : schedule::policy_help(frameworks::presets()))
    known.push_back(policy.name);
  return known;
}

bool is_known(const ShowOptions& options) {
  const std::string name = before_colon(options.what);
  return contains(names_without_clusters(options), name) ||
         models::is_shipped_cluster(name, options.data_dir + "/clusters");
}

[[noreturn]] void refuse_unknown(const ShowOptions& options) {
  std::vector<std::string> known = names_without_clusters(options);
  for (std::string& name : models::cluster_choices(options.data_dir + "/clusters")) {
    known.push_back(std::move(name));
  }
  const std::string near = nearest_word(options.what, known);
  throw InputError(
      "show: \"" + options.what + "\" is no file and no name here" +
      (near.empty() ? "" : "; did you mean " + near + "?") +
      "; workloads, clusters, policies and schemas list names, program, schedule and commands show "
      "a plan");
}

Shown find(const ShowOptions& options) {
  const bool of_plan = contains(kOfPlans, options.what);
  // A name that means nothing is told before flags that would have no effect on it.
  std::error_code unreadable;
  const bool is_file = std::filesystem::is_regular_file(options.what, unreadable);
  const bool is_path =
      options.what.find('/') != std::string::npos || options.what.ends_with(".json");
  if (!is_file && !is_path && !is_known(options)) {
    refuse_unknown(options);
  }
  const bool is_model =
      contains(models::workload_names(options.data_dir), before_colon(options.what));
  ShowOptions given = options;
  if (is_model) given.world.reset();  // it has an effect on models
  require_effects(given, of_plan);
  if (of_plan) return shown_of_plan(options);
  if (std::optional<Shown> list = shown_list(options)) return *std::move(list);
  if (is_file) return shown_file(options);
  if (std::optional<Shown> name = shown_name(options)) return *std::move(name);
  if (is_path) return shown_file(options);  // says why it cannot be read
  refuse_unknown(options);
}

}  // namespace

void show(const ShowOptions& options, std::ostream& out) {
  const Shown shown = find(options);
  require_outputs({document_file(options.document)}, {{"show", options.what}});
  if (shown.table) {
    put_document(options.document, {.json = shown.json, .table = shown.table}, out);
  } else {
    put_document(options.document, shown.json, out);
  }
  if (!replaces_report(options.document)) shown.print(out);
}

}  // namespace dovetail::cli
