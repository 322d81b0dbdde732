// What a report shows of one plan: its step and bound, its timeline, what its prediction rests on, and the lines
// for each framework.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answers/page/report.h"
#include "answers/prediction.h"
#include "base/units.h"
#include "cli/answer.h"
#include "cli/page.h"
#include "models/costs/costs.h"
#include "models/networks/memory.h"
#include "schedule/plan_json.h"
#include "schedule/policies/policies.h"
#include "schedule/scheduled_program.h"
#include "sim/steady.h"
#include "traces/trace.h"

namespace dovetail::cli {

// What ranks hold of their devices.
struct MemoryOnPage {
  std::vector<jobs::StageMemory> stages = {};  // of a job; empty: no job
  std::optional<Bytes> capacity = {};          // of a device; absent: not known
};

struct PlanOnPage {
  const schedule::Plan& plan;
  const schedule::ScheduledProgram& lowered;
  const models::Costs& costs;
  const sim::SteadyState& steady;       // of these commands
  std::string file;                     // of the plan, as commands name it
  std::optional<Duration> lower_bound;  // on these costs
  // What a job without a plan runs, beside it; nothing: none does the same.
  std::optional<schedule::Policy> usual = std::nullopt;
  MemoryOnPage memory = {};
  std::optional<Answer> answer = std::nullopt;  // of a command that has one
};

// PyTorch DDP's default where it trains what the plan does: nothing of a pipeline.
std::optional<schedule::Policy> usual_of(const schedule::Program& program);

// A report about this plan alone. `notes`: what is assumed.
report::Report report_of_plan(const PageOptions& page, const std::vector<std::string>& notes,
                              const PlanOnPage& what);

// All of it. Cost: some searches (search/sensitivity.h) and simulations.
void add_plan(report::Report& report, const PlanOnPage& what);

// The predicted timeline alone.
void add_timeline(report::Report& report, const std::string& title, const predict::TraceOf& what,
                  const MemoryOnPage& memory = {});

// Ranks, gradients and bytes of a Program.
void add_facts(report::Report& report, const schedule::Program& program);

}  // namespace dovetail::cli
