// Writing plans, and simulating them.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan.h"

#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/count.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/inputs.h"
#include "cli/outputs.h"
#include "cli/plan_machine.h"
#include "cli/plan_page.h"
#include "cli/steady_trace.h"
#include "cli/text.h"
#include "exports/export.h"
#include "models/costs_json.h"
#include "schedule/lower.h"
#include "schedule/plan_json.h"
#include "schedule/sharding.h"
#include "schedule/verify.h"
#include "search/planner.h"
#include "sim/interval.h"
#include "sim/steady.h"
#include "traces/metrics.h"
#include "traces/perfetto.h"
#include "traces/timeline.h"
#include "traces/trace_json.h"

namespace dovetail::cli {
namespace {

schedule::ScheduledProgram lower_and_verify(const schedule::Program& program,
                                            const schedule::Schedule& schedule,
                                            const std::string& source) {
  schedule::Lowered lowered = schedule::lower(program, schedule);
  for (const schedule::Problem& problem :
       schedule::verify(program, lowered.program, schedule.merge)) {
    throw InputError(source + ": illegal schedule: " + problem.message);
  }
  return std::move(lowered.program);
}

// What the model assumes of a schedule with several communication streams.
std::vector<std::string> stream_notes(const schedule::Schedule& schedule) {
  std::set<std::int32_t> streams;
  for (const schedule::Bucket& bucket : schedule.buckets) {
    const auto* comm = std::get_if<schedule::CommStream>(&bucket.stream);
    if (comm != nullptr) streams.insert(comm->index);
  }
  if (streams.size() < 2) return {};
  return {std::to_string(streams.size()) +
          " communication streams share the link: latencies pass side by side, bytes do not"};
}

// Where one step does not stand for all.
std::vector<std::string> notes_on(const sim::SteadyState& steady) {
  if (steady.cycle == 1) return {};
  const std::string mean = fixed(to_us(Duration(steady.summary.step_ns)) / 1e3, 3) + " ms";
  if (steady.cycle == 0) {
    return {"no steady state within " + std::to_string(steady.steps) +
            " steps: the later half takes " + mean + " a step on average"};
  }
  return {"steps take turns in cycles of " + std::to_string(steady.cycle) + ": " + mean +
          " on average; one of them follows"};
}

// Both figures of the step (figures.h), where the spread of costs was measured.
void print_figures(std::ostream& out, const schedule::ScheduledProgram& program,
                   const models::Costs& costs) {
  const std::optional<sim::StepInterval> interval = sim::step_interval(program, costs);
  if (!interval) return;
  const auto ms = [](Duration time) { return fixed(to_us(time) / 1e3, 3) + " ms"; };
  out << "  quiet step (p10) " << ms(interval->p10) << ", typical step (p50) "
      << ms(interval->median) << ", p90 " << ms(interval->p90) << ": of "
      << counted(std::int64_t{interval->draws}, "draw")
      << " from the spread of measured kernels and collectives\n";
}

}  // namespace

void plan(const PlanOptions& options, std::ostream& out) {
  if (options.output.empty()) throw InputError("plan: name the file to write with -o");
  require_outputs({{"-o", options.output}, {"--trace", options.trace}, page_output(options.page)},
                  {workload_file(options.inputs.workload, options.inputs.data_dir),
                   cluster_file(options.inputs.cluster, options.inputs.data_dir)});
  const schedule::PolicySpec spec = schedule::parse_policy(options.policy);
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
  std::vector<std::string> notes = stream_notes(result.schedule);
  if (candidate.bounded) {
    const search::Bound bound = checked_bound(planner.lower_bound(), candidate);
    predicted.lower_bound = bound.time;
    if (!bound.time) notes.push_back(bound.problem);
  }
  result.summary = {.workload = options.inputs.workload,
                    .cluster = inputs.cluster,
                    .predicted = predicted,
                    .link = inputs.link};
  std::vector<NewFile> files = {{options.output, schedule::plan_to_json(result)}};
  if (!options.trace.empty()) {
    const traces::Trace trace = simulate_steady(program, planner.costs(), kTraceSteps).trace;
    files.push_back({options.trace, traces::to_json(trace)});
  }
  if (options.page.wanted()) {
    std::vector<std::string> assumed = inputs.notes;
    assumed.insert(assumed.end(), notes.begin(), notes.end());
    files.push_back(
        page_file(options.page, report_of_plan(options.page, assumed,
                                               {.plan = result,
                                                .lowered = program,
                                                .costs = planner.costs(),
                                                .file = options.output,
                                                .lower_bound = predicted.lower_bound})));
  }
  write_files(files);
  out << options.output << ": " << schedule::to_string(spec) << ", "
      << counted(candidate.buckets(), "bucket") << "; predicted step "
      << fixed(to_us(predicted.step) / 1e3, 3) << " ms, exposed "
      << fixed(to_us(predicted.exposed) / 1e3, 3) << " ms";
  if (predicted.lower_bound) {
    out << ", lower bound " << fixed(to_us(*predicted.lower_bound) / 1e3, 3) << " ms";
  }
  out << '\n';
  print_figures(out, program, planner.costs());
  print_notes(out, inputs.notes);
  print_notes(out, notes);
  if (is_sharded(result.schedule)) print_notes(out, inputs.sharding_notes);
  for (const std::string& line : candidate.report) out << "  " << line << '\n';
  for (const std::string& line : candidate.left_out) out << "  left out: " << line << '\n';
  if (!options.trace.empty()) out << options.trace << ": predicted trace\n";
  out << "next: " << exports::export_command(options.output) << '\n';
}

void predict(const PredictOptions& options, std::ostream& out) {
  require_outputs({{"--trace", options.trace},
                   {"--perfetto", options.perfetto},
                   {"--costs", options.costs},
                   page_output(options.page)},
                  {{"--plan", options.plan}, cluster_file(options.cluster, options.data_dir)});
  const schedule::Plan plan = schedule::read_plan(options.plan);
  const PlanMachine machine = machine_of(
      {.command = "predict", .cluster = options.cluster, .data_dir = options.data_dir}, plan);
  const auto program = lower_and_verify(plan.program, plan.schedule, options.plan);
  const Simulated simulated = simulate_steady(program, machine.costs, options.steps);
  const traces::Trace& trace = simulated.trace;
  std::vector<NewFile> files;
  if (!options.trace.empty()) files.push_back({options.trace, traces::to_json(trace)});
  if (!options.perfetto.empty()) {
    const std::array<const traces::Trace*, 1> one = {&trace};
    files.push_back({options.perfetto, traces::perfetto_json(one)});
  }
  if (!options.costs.empty()) {
    files.push_back({options.costs, models::costs_to_json(machine.costs)});
  }
  if (options.page.wanted()) {
    files.push_back(
        page_file(options.page, report_of_plan(options.page, machine.notes,
                                               {.plan = plan,
                                                .lowered = program,
                                                .costs = machine.costs,
                                                .file = options.plan,
                                                .lower_bound = bound_on(plan, options.cluster)})));
  }
  write_files(files);
  out << "dovetail " << DOVETAIL_VERSION << "; plan " << options.plan << " ("
      << plan.schedule.policy << ") on " << machine.costs.machine << "; predicted (simulated)\n";
  print_notes(out, machine.notes);
  print_notes(out, stream_notes(plan.schedule));
  print_notes(out, notes_on(simulated.steady));
  traces::print(out, traces::median_step(trace));
  print_figures(out, program, machine.costs);
  if (options.timeline) out << '\n' << traces::timeline(trace);
  if (!options.perfetto.empty()) out << options.perfetto << ": open in ui.perfetto.dev\n";
}

}  // namespace dovetail::cli
