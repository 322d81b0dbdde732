// Removes from a plan whatever is not an op, and what referred to it.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/compute_only.h"

#include "schedule/transfers.h"

#include <variant>
#include <vector>

namespace dovetail::exec {

schedule::ScheduledProgram without_communication(const schedule::ScheduledProgram& plan) {
  schedule::ScheduledProgram ops = plan;
  ops.policy = plan.policy + " without communication";
  ops.streams.resize(1);
  for (schedule::RankProgram& role : ops.roles) {
    std::erase_if(role.commands,
                  [](const schedule::Command& command) { return !schedule::op_run_by(command); });
  }
  schedule::link_transfers(ops);
  return ops;
}

schedule::ScheduledProgram only_computing(const schedule::ScheduledProgram& plan) {
  schedule::ScheduledProgram ops = without_communication(plan);
  for (schedule::RankProgram& role : ops.roles) {
    std::erase_if(role.commands, [&](const schedule::Command& command) {
      const schedule::Op& op = ops.program.op(*schedule::op_run_by(command));
      return std::holds_alternative<schedule::CollectiveWork>(op.work);
    });
  }
  schedule::link_transfers(ops);
  return ops;
}

}  // namespace dovetail::exec
