// Lists the ops that a rank runs and the buckets that it keeps, from the commands of its role.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/rank_work.h"

#include "base/error.h"
#include "exec/run.h"

#include <map>
#include <string>
#include <variant>

namespace dovetail::exec {

void require_executable(const schedule::Program& program, std::string_view backend) {
  for (const schedule::Op& op : program.ops) {
    for (const schedule::Kernel& kernel : schedule::kernels_of(op.work)) {
      const auto* gemm = std::get_if<schedule::GemmWork>(&kernel);
      if (gemm == nullptr || gemm->operands == schedule::Operands::Own) continue;
      if (gemm->operands == schedule::Operands::Tf32) continue;  // as the machine multiplies f32
      throw InputError(op.name + ": products of " + std::string(to_string(gemm->operands)) +
                       " can be predicted, not executed");
    }
    if (!std::holds_alternative<schedule::TimedWork>(op.work)) continue;
    throw InputError(
        op.name + ": the " + std::string(backend) +
        " backend cannot execute a recorded time; make the plan with a cluster file that has a "
        "unit kernel (dovetail calibrate)");
  }
}

RankWork work_of(const schedule::ScheduledProgram& plan, Rank rank) {
  std::map<OpId, const schedule::Op*> ops;
  for (const schedule::Op& op : plan.program.ops) ops[op.id] = &op;
  RankWork work;
  for (const schedule::Command& command : role_of(plan, rank).commands) {
    if (const std::optional<OpId> op = schedule::op_run_by(command)) {
      work.ops.push_back(ops.at(*op));
    } else if (const auto* collective = schedule::bucket_collective(command)) {
      work.buckets.insert(*collective->bucket);
    } else if (const auto* copy = std::get_if<schedule::Copy>(&command.action)) {
      work.buckets.insert(copy->bucket);
    } else if (const auto* scale = std::get_if<schedule::Scale>(&command.action)) {
      work.buckets.insert(scale->bucket);
    }
  }
  for (const schedule::Op* op : work.ops) {
    const auto* update = std::get_if<schedule::ShardUpdate>(&op->effect);
    if (update == nullptr) continue;
    work.buckets.insert(update->gradients);
    work.buckets.insert(update->parameters);
  }
  return work;
}

}  // namespace dovetail::exec
