// Collects what the report of one plan shows: step, bound, timeline, assumptions, and the lines
// for each framework.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_page.h"

#include <algorithm>

#include "answers/memory_over_time.h"
#include "answers/prediction.h"
#include "answers/step_parts.h"
#include "base/attempt.h"
#include "base/count.h"
#include "base/json.h"
#include "cli/export.h"
#include "cli/page.h"
#include "cli/stage_table.h"
#include "cli/text.h"
#include "frameworks/framework.h"
#include "schedule/data_parallel.h"
#include "schedule/policies/policies.h"
#include "search/sensitivity.h"
#include "sim/interval.h"
#include "traces/metrics.h"

namespace dovetail::cli {
namespace {

// Commands of a step that is not planned again for other costs and other frameworks: that would take many seconds.
constexpr std::size_t kMostToTryAgain = 10'000;

std::size_t commands_of(const schedule::ScheduledProgram& program) {
  std::size_t commands = 0;
  for (const schedule::RankProgram& role : program.roles) commands += role.commands.size();
  return commands;
}

// How well a table of collectives is known: each inner point predicted from its neighbours, and how far
// measured times strayed.
void add_errors(report::Report& report, const models::Costs& costs) {
  for (const models::CollectiveCost& cost : costs.collectives) {
    const auto& accuracy = cost.time.accuracy();
    if (!accuracy || accuracy->points == 0) continue;
    report.assumptions.push_back(
        {.text = std::string(to_string(cost.key.collective)) + " over " +
                 counted(cost.key.ranks, "rank") +
                 ": times between the measured sizes lie on straight lines",
         .error_percent = 100 * accuracy->worst,
         .error_of = "at worst, of " + counted(accuracy->points, "measured size") +
                     " predicted from their neighbours; " + fixed(100 * accuracy->median, 2) +
                     " % in the median"});
  }
}

void add_interval(report::Report& report, const PlanOnPage& what) {
  const auto interval = sim::step_interval(what.lowered, what.costs);
  if (!interval || interval->median.count() == 0) return;
  report.found->p10 = interval->p10;
  report.found->p90 = interval->p90;
  const auto half = static_cast<double>((interval->p90 - interval->p10).count()) / 2;
  report.assumptions.push_back(
      {.text = "kernels and collectives stray as they did when they were measured",
       .error_percent = 100 * half / static_cast<double>(interval->median.count()),
       .error_of = "half of p10 to p90 of the step over " +
                   counted(std::int64_t{interval->draws}, "draw")});
}

// Nothing of a step that owes no reduction: it has no other plan.
void add_sensitivity(report::Report& report, const PlanOnPage& what) {
  if (what.plan.schedule.buckets.empty()) return;
  if (what.usual) report.usual = schedule::to_string(*what.usual);
  for (const search::SensitivityRow& row :
       search::sensitivity({what.plan.program, what.costs, what.plan.schedule, what.usual})) {
    report.sensitivity.push_back({.cost = std::string(to_string(row.part)),
                                  .factor = row.factor,
                                  .plan = row.plan,
                                  .usual = row.usual,
                                  .best = row.best});
  }
}

std::string file_for(const frameworks::Framework& framework, const std::string& text) {
  std::string name(framework.id);
  std::ranges::replace(name, '-', '_');
  const bool is_json = text.starts_with('{');
  const bool is_csv = framework.id == "nccl-tuner";
  return name + "_plan" + (is_csv ? ".csv" : is_json ? ".json" : ".py");
}

void add_traced(report::Report& report, const std::string& title,
                const schedule::ScheduledProgram& program, const predict::Traced& traced,
                const MemoryOnPage& memory) {
  const traces::Trace& trace = traced.trace;
  const std::int32_t step = traces::median_step_index(trace);
  report.timelines.push_back(report::timeline(
      trace,
      {.title = title,
       .program = &program,
       .path = &traced.path,
       .bubbles = predict::bubbles(program, trace, step),
       .memory = predict::memory_over_time(program, trace, {.step = step, .stages = memory.stages}),
       .capacity = memory.stages.empty() ? std::nullopt : memory.capacity}));
}

void add_stages(report::Report& report, const schedule::ScheduledProgram& program,
                const predict::Traced& traced) {
  const nlohmann::ordered_json stages = {
      {"schema", "dovetail.stages/1"},
      {"kind", "stages"},
      {"origin", "simulated"},
      {"rows", stages_json(predict::step_parts(program, traced.trace))}};
  report.results.push_back(stages.dump());
}

// A framework that cannot run the plan is left out.
void add_paste(report::Report& report, const PlanOnPage& what) {
  if (what.plan.schedule.buckets.empty()) return;
  const frameworks::Machine machine = simulated_machine(what.plan, what.costs);
  for (const frameworks::Framework& framework : frameworks::all()) {
    if (!frameworks::has_writer(framework)) continue;
    const auto attempted = attempt([&] {
      return frameworks::export_plan(framework, what.plan, machine,
                                     {.version = DOVETAIL_VERSION, .plan = what.file});
    });
    if (!attempted) continue;
    const frameworks::Export& made = *attempted.value;
    report::Paste paste;
    paste.framework = framework.title;
    paste.file = file_for(framework, made.text);
    paste.text = made.text;
    paste.use = with_file(made.paste, paste.file);
    paste.step = made.as_run;
    for (const frameworks::Loss& loss : made.losses) {
      paste.given_up.push_back(loss.what + ": " + frameworks::loss_percent(made, loss.more));
    }
    report.paste.push_back(std::move(paste));
  }
}

}  // namespace

void add_timeline(report::Report& report, const std::string& title, const predict::TraceOf& what,
                  const MemoryOnPage& memory) {
  add_traced(report, title, what.program, predict::trace_of(what, predict::kTraceSteps), memory);
}

std::optional<schedule::Policy> usual_of(const schedule::Program& program) {
  if (program.stages > 1) return std::nullopt;
  return schedule::parse_policy("torch-ddp");
}

void add_facts(report::Report& report, const schedule::Program& program) {
  const schedule::ReducedGradients reduced = schedule::reduced_gradients(program);
  report.facts.push_back({"ranks", std::to_string(program.world_size)});
  report.facts.push_back({"gradients", std::to_string(reduced.count)});
  report.facts.push_back({"gradient bytes", dovetail::to_string(reduced.bytes)});
}

report::Report report_of_plan(const PageOptions& page, const std::vector<std::string>& notes,
                              const PlanOnPage& what) {
  const std::string& machine = what.costs.machine;
  const std::string& workload = what.plan.summary.workload;
  report::Report report =
      start_page(page, workload + " on " + machine + ": " + what.plan.schedule.policy);
  if (what.answer) report.answer = answer_on_page(*what.answer);
  report.facts = {
      {"workload", workload}, {"machine", machine}, {"policy", what.plan.schedule.policy}};
  add_facts(report, what.plan.program);
  add_notes(report, notes);
  add_plan(report, what);
  return report;
}

void add_plan(report::Report& report, const PlanOnPage& what) {
  const std::string& policy = what.plan.schedule.policy;
  report::Found found;
  found.policy = policy;
  found.buckets = what.plan.schedule.buckets.size();
  found.step = Duration(what.steady.summary.step_ns);
  found.exposed = Duration(what.steady.summary.exposed_ns);
  found.lower_bound = what.lower_bound;
  report.found = found;
  const predict::Traced traced = predict::trace_of(
      {.program = what.lowered, .costs = what.costs, .steady = what.steady}, predict::kTraceSteps);
  add_traced(report, policy, what.lowered, traced, what.memory);
  add_stages(report, what.lowered, traced);
  add_errors(report, what.costs);
  add_interval(report, what);
  const std::size_t commands = commands_of(what.lowered);
  if (commands > kMostToTryAgain) {
    report.remarks.push_back("Left out for a step of " + counted(commands, "command") +
                             ": other costs, and files for frameworks (dovetail export).");
    return;
  }
  add_sensitivity(report, what);
  add_paste(report, what);
}

}  // namespace dovetail::cli
