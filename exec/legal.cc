// Lets the verifier judge a plan before anything runs, and notes in the lowered plan which
// reductions the user's Program asks for, so that a check on real data knows what to expect.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/legal.h"

#include "base/error.h"
#include "schedule/verify/verify.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace dovetail::exec {

std::vector<schedule::Reduction> owed_by(const schedule::Plan& plan) {
  std::vector<schedule::Reduction> owed = plan.program.reductions;
  const std::int32_t steps = std::max(plan.program.micro_steps, plan.schedule.merge.micro_steps);
  const bool divides =
      plan.schedule.merge.op == schedule::ReduceOp::Average && steps != plan.program.micro_steps;
  std::set<TensorId> divided;
  for (schedule::Reduction& reduction : owed) {
    if (!divides || !divided.insert(reduction.gradient).second) continue;
    reduction.scale = reduction.scale / Rational(steps);
  }
  return owed;
}

void require_legal(const schedule::Plan& plan, schedule::ScheduledProgram& lowered,
                   std::string_view name) {
  const std::vector<schedule::Problem> problems =
      schedule::verify(plan.program, lowered, plan.schedule.merge);
  if (!problems.empty()) {
    throw InputError(std::string(name) + ": illegal schedule: " + problems.front().message);
  }
  lowered.owed = owed_by(plan);
}

}  // namespace dovetail::exec
