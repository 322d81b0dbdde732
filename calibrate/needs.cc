// Lists the collectives and the passes over memory that plans of the given policies hold, by
// making those plans, so that a calibration measures what a prediction will ask for.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/needs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "frameworks/framework.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"

namespace dovetail::calibrate {
namespace {

using schedule::Program;
using schedule::ScheduledProgram;

// Any grouping by times has the same passes and kinds of collectives as that of one bucket, in any number of thread blocks.
ScheduledProgram plan_of(const Program& program, const std::string& policy) {
  schedule::Policy spec = frameworks::parse_policy(policy);
  if (schedule::groups_by_times(spec)) spec.decisions.grouping = schedule::OneBucket{};
  if (schedule::needs_costs(spec)) spec = schedule::with_ctas(spec, 0);
  const schedule::PolicyResult decided = schedule::apply_policy(program, spec);
  if (decided.failure) {
    throw InputError("calibrate: --policy " + policy + ": " + *decided.failure);
  }
  return schedule::lower(program, decided.schedule).program;
}

std::set<models::PassKind> passes_in(const Program& program) {
  std::set<models::PassKind> kinds;
  for (const schedule::Op& op : program.ops) {
    if (const std::optional<models::PassKind> kind = models::pass_of(op)) kinds.insert(*kind);
  }
  return kinds;
}

bool is_all_reduce_of_all(const ScheduledProgram& plan, const schedule::Transfer& transfer) {
  return transfer.kind == schedule::Collective::AllReduce &&
         plan.program.group(transfer.group).size() == plan.program.world_size;
}

}  // namespace

CalibrationNeeds needs_of(const Program& program, std::span<const std::string> policies) {
  CalibrationNeeds needs;
  const std::set<models::PassKind> own = passes_in(plan_of(program, "no-overlap").program);
  for (const std::string& policy : policies) {
    const ScheduledProgram plan = plan_of(program, policy);
    for (const models::PassKind kind : passes_in(plan.program)) {
      if (!own.contains(kind)) needs.passes.insert(kind);
    }
    needs.further_collectives |=
        !std::ranges::all_of(plan.transfers, [&plan](const schedule::Transfer& transfer) {
          return is_all_reduce_of_all(plan, transfer);
        });
  }
  return needs;
}

schedule::Program as_one_stage(schedule::Program program) {
  program.stages = 1;
  for (schedule::Op& op : program.ops) op.stage = 0;
  return program;
}

std::vector<schedule::ScheduledProgram> pass_variants(const schedule::Program& program) {
  const schedule::Program whole = as_one_stage(program);
  std::vector<schedule::ScheduledProgram> variants;
  for (const char* policy : {"gradient-merge:k=2", "sharded:cap=1MiB", "sharded:cap=25MiB"}) {
    const schedule::PolicyResult decided =
        schedule::apply_policy(whole, frameworks::parse_policy(policy));
    if (decided.failure) continue;
    variants.push_back(schedule::lower(whole, decided.schedule).program);
  }
  return variants;
}

void require_policies(std::span<const std::string> policies) {
  for (const std::string& policy : policies) static_cast<void>(frameworks::parse_policy(policy));
}

std::string in_one_line(std::span<const std::string> policies) {
  std::string line;
  for (const std::string& policy : policies) line += (line.empty() ? "" : "; ") + policy;
  return line;
}

Wanted wanted_for(const Program& program, std::span<const std::string> policies) {
  Wanted wanted;
  wanted.variants = pass_variants(program);
  if (policies.empty()) return wanted;
  const CalibrationNeeds needs = needs_of(program, policies);
  wanted.further_collectives = needs.further_collectives;
  std::erase_if(wanted.variants, [&needs](const ScheduledProgram& variant) {
    const std::set<models::PassKind> held = passes_in(variant.program);
    return std::ranges::none_of(
        held, [&needs](models::PassKind kind) { return needs.passes.contains(kind); });
  });
  return wanted;
}

}  // namespace dovetail::calibrate
