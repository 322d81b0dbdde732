// Writing plans.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/document.h"
#include "cli/inputs.h"
#include "cli/outputs.h"
#include "cli/plan_page.h"
#include "cli/simulated_plan.h"
#include "cli/steady_trace.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "models/cluster.h"
#include "schedule/plan_json.h"
#include "schedule/sharding.h"
#include "search/planner.h"
#include "sim/interval.h"
#include "traces/trace_json.h"

namespace dovetail::cli {
namespace {

// What a person reads about a plan that was written.
struct Written {
  const PlanOptions& options;
  const search::Candidate& candidate;
  const schedule::Prediction& predicted;
  const std::optional<sim::StepInterval>& figures;
  const std::vector<std::string>& notes;
};

std::string ms(Duration time) { return fixed(to_us(time) / 1e3, 3) + " ms"; }

void print_plan(std::ostream& out, const Written& plan) {
  out << plan.options.output << ": " << schedule::to_string(plan.candidate.spec) << ", "
      << counted(plan.candidate.buckets(), "bucket") << "; predicted step "
      << ms(plan.predicted.step) << ", exposed " << ms(plan.predicted.exposed);
  if (plan.predicted.lower_bound) out << ", lower bound " << ms(*plan.predicted.lower_bound);
  out << '\n';
  print_figures(out, plan.figures);
  print_notes(out, plan.notes);
  for (const std::string& line : plan.candidate.report) out << "  " << line << '\n';
  for (const std::string& line : plan.candidate.left_out) out << "  left out: " << line << '\n';
  if (!plan.options.trace.empty()) out << plan.options.trace << ": predicted trace\n";
  out << "next: " << frameworks::export_command(plan.options.output) << '\n';
}

// For `predict`, which then finds the machine of the plan by itself; "" for a shipped one.
std::string file_of_cluster(const InputOptions& inputs) {
  const std::vector<std::string> shipped = models::cluster_names(inputs.data_dir + "/clusters");
  return std::ranges::count(shipped, inputs.cluster) > 0 ? "" : inputs.cluster;
}

}  // namespace

void plan(const PlanOptions& options, std::ostream& out) {
  if (options.output.empty() && !options.json) {
    throw InputError("plan: name the file to write with -o, or --json for standard output");
  }
  const bool to_out = options.json || options.output == "-";
  const std::string file = options.output == "-" ? "" : options.output;
  require_outputs({{"-o", file}, {"--trace", options.trace}, page_output(options.page)},
                  {workload_file(options.inputs.workload, options.inputs.data_dir),
                   cluster_file(options.inputs.cluster, options.inputs.data_dir)});
  const schedule::PolicySpec spec = frameworks::parse_policy(options.policy);
  InputOptions wanted = options.inputs;
  wanted.split = {.stages = spec.stages, .chunks = spec.chunks};
  Inputs inputs = load_inputs(wanted);
  search::Planner planner(std::move(inputs.program), std::move(inputs.costs));
  const search::Planned planned = planner.plan(spec);
  const search::Candidate& candidate = planned.candidate;
  const schedule::ScheduledProgram& program = planned.program;
  schedule::Plan result{
      .program = planner.program(), .schedule = candidate.schedule, .summary = {}};
  schedule::Prediction predicted{.step = Duration(candidate.summary.step_ns),
                                 .exposed = Duration(candidate.summary.exposed_ns),
                                 .lower_bound = {}};
  std::vector<std::string> notes = inputs.notes;
  for (std::string& note : stream_notes(result.schedule)) notes.push_back(std::move(note));
  if (candidate.bounded) {
    const search::Bound bound = checked_bound(planner.lower_bound(), candidate);
    predicted.lower_bound = bound.time;
    if (!bound.time) notes.push_back(bound.problem);
  }
  result.summary = {.workload = options.inputs.workload,
                    .cluster = inputs.cluster,
                    .predicted = predicted,
                    .link = inputs.link,
                    .cluster_file = file_of_cluster(options.inputs)};
  if (is_sharded(result.schedule)) {
    notes.insert(notes.end(), inputs.sharding_notes.begin(), inputs.sharding_notes.end());
  }
  const std::string text = with_tool(schedule::plan_to_json(result));
  std::vector<NewFile> files;
  if (!file.empty()) files.push_back({file, text});
  if (!options.trace.empty()) {
    Simulated simulated = simulate_steady(program, planner.costs(), kTraceSteps);
    note_in(simulated.trace, result.summary.workload, notes);
    files.push_back({options.trace, with_tool(traces::to_json(simulated.trace))});
  }
  if (options.page.wanted()) {
    files.push_back(
        page_file(options.page, report_of_plan(options.page, notes,
                                               {.plan = result,
                                                .lowered = program,
                                                .costs = planner.costs(),
                                                .file = options.output,
                                                .lower_bound = predicted.lower_bound})));
  }
  write_files(files);
  if (to_out) {
    out << text;
    return;
  }
  const std::optional<sim::StepInterval> figures = sim::step_interval(program, planner.costs());
  print_plan(out, {.options = options,
                   .candidate = candidate,
                   .predicted = predicted,
                   .figures = figures,
                   .notes = notes});
}

}  // namespace dovetail::cli
