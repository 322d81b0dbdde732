// What one plan does on one machine: its commands, its steady step, and what that rests on.
//
//   Prediction found = predict_plan(plan, machine, "plan.json");
//   found.step(), found.exposed();
//   Traced traced = trace_of(found, kTraceSteps);
//
// A plan file becomes a Prediction by lowering, proof and simulation in this one place, whoever asks: a
// report, an export, a page. A planner, which has the commands already, asks for the notes and the trace.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "answers/inputs.h"
#include "base/units.h"
#include "schedule/plan_json.h"
#include "schedule/scheduled_program.h"
#include "sim/steady.h"
#include "traces/critical_path.h"
#include "traces/trace.h"

namespace dovetail::predict {

// The commands of a Schedule. Throws InputError "SOURCE: illegal schedule: ..." where it cannot be run.
schedule::ScheduledProgram lower_and_verify(const schedule::Program& program,
                                            const schedule::Schedule& schedule,
                                            const std::string& source);

sim::SteadyState steady_state(const schedule::ScheduledProgram& program,
                              const models::Costs& costs);

// Where one step does not stand for all; nothing where it does.
std::vector<std::string> notes_on(const sim::SteadyState& steady);

// Whether the device waits for the host so long that a step may be host-bound.
bool waits_for_host(const sim::StepSummary& summary);

// A step that is host-bound: no other bucket size will help.
struct HostBound {
  Duration step{};
  Duration waits{};  // of the step: the device, for the host
};
// "host-bound: no other bucket size will help; the device waits 3.120 ms of 4.500 ms for the host"
std::string to_string(const HostBound& bound);
// The second half of it: what is left then.
std::string waits_text(const HostBound& bound);

// Where that holds for this step (sim/host_bound.h). Cost: one more simulation where the device waits for long.
std::optional<HostBound> host_bound(const schedule::ScheduledProgram& program,
                                    const models::Costs& costs, const sim::SteadyState& steady);

struct Prediction {
  schedule::Plan plan;
  Machine machine;
  std::optional<HostBound> host_bound = std::nullopt;
  std::vector<std::string> notes;  // what it rests on, one line each
  schedule::ScheduledProgram program;
  sim::SteadyState steady;

  // Of the steady state: where steps take turns, the average of a cycle.
  [[nodiscard]] Duration step() const { return Duration(steady.summary.step_ns); }
  [[nodiscard]] Duration exposed() const { return Duration(steady.summary.exposed_ns); }
};

// `source`: of the plan, for messages. Throws InputError for an illegal schedule.
Prediction predict_plan(schedule::Plan plan, Machine machine, const std::string& source);

// Steps of a predicted trace, or more where it takes more until they repeat (sim/steady.h). The first
// begins with idle streams, so the median of three is a steady one, which is what plans state.
inline constexpr std::int32_t kTraceSteps = 3;

struct Traced {
  traces::Trace trace;
  traces::CriticalPath path;  // of each step of the trace
};

// What a trace is made of; all of it outlives the call.
struct TraceOf {
  const schedule::ScheduledProgram& program;
  const models::Costs& costs;
  const sim::SteadyState& steady;
  std::string workload = {};            // with its options; "": as the Program names it
  std::vector<std::string> notes = {};  // into the trace's provenance
};

// As many steps as asked for, but from kTraceSteps on enough for the median step to be a steady one.
Traced trace_of(const TraceOf& what, std::int32_t steps);
Traced trace_of(const Prediction& prediction, std::int32_t steps);

}  // namespace dovetail::predict
