// Lowers and proves a Schedule, plays its steps until they repeat, and records some of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/prediction.h"

#include <cstddef>
#include <utility>

#include "base/decimal.h"
#include "base/error.h"
#include "models/costs/scaled_costs.h"
#include "schedule/lower/lower.h"
#include "schedule/verify/verify.h"
#include "sim/critical_path.h"
#include "sim/host_bound.h"

namespace dovetail::predict {

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

sim::SteadyState steady_state(const schedule::ScheduledProgram& program,
                              const models::Costs& costs) {
  sim::CompiledProgram compiled;
  sim::Workspace workspace;
  return sim::find_steady_state(program, costs, compiled, workspace);
}

std::vector<std::string> notes_on(const sim::SteadyState& steady) {
  if (steady.cycle == 1) return {};
  const std::string mean = milliseconds(Duration(steady.summary.step_ns));
  if (steady.cycle == 0) {
    return {"no steady state within " + std::to_string(steady.steps) +
            " steps: the later half takes " + mean + " a step on average"};
  }
  return {"steps take turns in cycles of " + std::to_string(steady.cycle) + ": " + mean +
          " on average; one of them follows"};
}

bool waits_for_host(const sim::StepSummary& summary) {
  return step::is_host_bound(
      {.step = Duration(summary.step_ns), .waits = Duration(summary.host_wait_ns)});
}

std::string waits_text(const HostBound& bound) {
  return "the device waits " + milliseconds(bound.waits) + " of " + milliseconds(bound.step) +
         " for the host";
}

std::string to_string(const HostBound& bound) {
  return "host-bound: no other bucket size will help; " + waits_text(bound);
}

std::optional<HostBound> host_bound(const schedule::ScheduledProgram& program,
                                    const models::Costs& costs, const sim::SteadyState& steady) {
  constexpr double kNothing = 1e-6;  // of a time; scaled() does not take 0
  step::HostWait wait{.step = Duration(steady.summary.step_ns),
                      .waits = Duration(steady.summary.host_wait_ns)};
  if (!waits_for_host(steady.summary)) return std::nullopt;
  const models::Costs quick = models::scaled(
      models::scaled(costs, models::CostPart::Link, kNothing), models::CostPart::Latency, kNothing);
  wait.network_gain = wait.step - Duration(steady_state(program, quick).summary.step_ns);
  if (!step::is_host_bound(wait)) return std::nullopt;
  return HostBound{.step = wait.step, .waits = wait.waits};
}

Prediction predict_plan(schedule::Plan plan, Machine machine, const std::string& source) {
  schedule::ScheduledProgram program = lower_and_verify(plan.program, plan.schedule, source);
  const sim::SteadyState steady = steady_state(program, machine.costs);
  std::vector<std::string> notes = notes_on(machine, plan.program, plan.summary, plan.schedule);
  for (std::string& note : notes_on(steady)) notes.push_back(std::move(note));
  const std::optional<HostBound> bound = host_bound(program, machine.costs, steady);
  return {.plan = std::move(plan),
          .machine = std::move(machine),
          .host_bound = bound,
          .notes = std::move(notes),
          .program = std::move(program),
          .steady = steady};
}

Traced trace_of(const TraceOf& what, std::int32_t steps) {
  if (steps >= kTraceSteps) steps = sim::steps_to_show(what.steady, steps);
  sim::Explained explained = sim::simulate_and_explain(what.program, what.costs, {.steps = steps});
  traces::Provenance& provenance = explained.trace.provenance;
  if (!what.workload.empty()) provenance.workload = what.workload;
  for (std::size_t i = 0; i < what.notes.size(); ++i) {
    provenance.notes["note " + std::to_string(i + 1)] = what.notes[i];
  }
  return {.trace = std::move(explained.trace), .path = std::move(explained.path)};
}

Traced trace_of(const Prediction& prediction, std::int32_t steps) {
  std::vector<std::string> notes = prediction.notes;
  if (prediction.host_bound) notes.insert(notes.begin(), to_string(*prediction.host_bound));
  return trace_of({.program = prediction.program,
                   .costs = prediction.machine.costs,
                   .steady = prediction.steady,
                   .workload = prediction.plan.summary.workload,
                   .notes = notes},
                  steps);
}

}  // namespace dovetail::predict
