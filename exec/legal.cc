// The gate.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/legal.h"

#include "base/error.h"
#include "schedule/verify.h"

#include <string>
#include <vector>

namespace dovetail::exec {

void require_legal(const schedule::Plan& plan, const schedule::ScheduledProgram& lowered,
                   std::string_view name) {
  const std::vector<schedule::Problem> problems =
      schedule::verify(plan.program, lowered, plan.schedule.merge);
  if (problems.empty()) return;
  throw InputError(std::string(name) + ": illegal schedule: " + problems.front().message);
}

}  // namespace dovetail::exec
