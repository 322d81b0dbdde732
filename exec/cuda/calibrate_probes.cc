// Programs of gradients that nobody computes, lowered like any other.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/calibrate_probes.h"

#include "base/error.h"
#include "schedule/lower.h"
#include "schedule/policies.h"
#include "schedule/verify.h"

#include <algorithm>
#include <string>
#include <utility>

namespace dovetail::exec::cuda {
namespace {

using schedule::Op;
using schedule::Phase;
using schedule::Program;
using schedule::Tensor;
using schedule::TensorKind;

constexpr Bytes kTiny = kib(4);
// Keeps the device busy while the host enqueues a queue of transfers, at up to 20 us each.
constexpr Bytes kHeadStart = mib(1024);

std::int32_t first_free_tensor(const Program& program) {
  std::int32_t id = 0;
  for (const Tensor& tensor : program.tensors) id = std::max(id, tensor.id.value + 1);
  return id;
}

std::int32_t first_free_op(const Program& program) {
  std::int32_t id = 0;
  for (const Op& op : program.ops) id = std::max(id, op.id.value + 1);
  return id;
}

GroupId add_group(Program& program) {
  std::int32_t id = 0;
  for (const schedule::ProcessGroup& group : program.groups) id = std::max(id, group.id.value + 1);
  schedule::ProcessGroup all;
  all.id = GroupId{id};
  all.name = "probe";
  for (std::int32_t rank = 0; rank < program.world_size; ++rank) all.ranks.push_back(Rank{rank});
  program.groups.push_back(all);
  return all.id;
}

Op tiny_op(std::int32_t id, std::string name, Phase phase) {
  Op op;
  op.id = OpId{id};
  op.name = std::move(name);
  op.phase = phase;
  op.work = schedule::MemoryWork{.bytes = kTiny, .flop = Flop(0)};
  return op;
}

// Puts the transfers around what the program has: one op at the start writes all gradients, one at
// the end reads them.
void add_transfers(Program& program, const TransferProbe& probe) {
  const GroupId group = add_group(program);
  std::int32_t tensor = first_free_tensor(program);
  const std::int32_t op = first_free_op(program);
  Op writer = tiny_op(op, "probe.begin", Phase::Forward);
  writer.work = schedule::MemoryWork{.bytes = kHeadStart, .flop = Flop(0)};
  Op reader = tiny_op(op + 1, "probe.end", Phase::Optimizer);
  const std::int64_t numel = std::max<std::int64_t>(1, probe.bytes.count() / 4);
  for (std::int64_t i = 0; i < probe.count; ++i) {
    Tensor gradient;
    gradient.id = TensorId{tensor++};
    gradient.name = "probe.grad" + std::to_string(i);
    gradient.kind = TensorKind::Gradient;
    gradient.shape = {numel};
    program.tensors.push_back(gradient);
    program.reductions.push_back({.gradient = gradient.id, .group = group});
    writer.writes.push_back(gradient.id);
    reader.reads.push_back(gradient.id);
  }
  Tensor parameter;
  parameter.id = TensorId{tensor};
  parameter.name = "probe.weight";
  parameter.kind = TensorKind::Parameter;
  parameter.shape = {1};
  program.tensors.push_back(parameter);
  reader.writes.push_back(parameter.id);
  program.ops.insert(program.ops.begin(), std::move(writer));
  program.ops.push_back(std::move(reader));
}

schedule::ScheduledProgram lowered(const Program& program, const TransferProbe& probe) {
  const std::vector<std::string> wrong = problems(program);
  DOVETAIL_CHECK(wrong.empty()) << wrong.front();
  schedule::PolicySpec spec = schedule::default_policy(schedule::PolicyKind::PerTensor);
  spec.mode = probe.mode;
  schedule::Schedule made = schedule::make_schedule(program, spec);
  for (schedule::Bucket& bucket : made.buckets) bucket.max_ctas = probe.max_ctas;
  schedule::ScheduledProgram plan = schedule::lower(program, made).program;
  const std::vector<schedule::Problem> illegal = schedule::verify(program, plan, made.merge);
  DOVETAIL_CHECK(illegal.empty()) << illegal.front().message;
  return plan;
}

}  // namespace

void add_run(schedule::RankProgram& role, OpId op) {
  const auto id = static_cast<std::int32_t>(role.commands.size());
  schedule::Command& command = role.commands.emplace_back();
  command.id = CommandId{id};
  command.stream = schedule::kComputeStream;
  command.action = schedule::RunOp{.op = op};
}

schedule::ScheduledProgram transfer_plan(const TransferProbe& probe) {
  Program program;
  program.name = "transfers";
  program.world_size = probe.ranks;
  add_transfers(program, probe);
  return lowered(program, probe);
}

schedule::ScheduledProgram chain_plan(std::int64_t ranks, std::int64_t count, Bytes bytes) {
  schedule::ScheduledProgram plan;
  plan.program.name = "chain";
  plan.program.world_size = ranks;
  plan.policy = "chain";
  plan.streams = {{.id = schedule::kComputeStream, .name = "compute"}};
  schedule::RankProgram role;
  for (std::int32_t rank = 0; rank < ranks; ++rank) role.ranks.push_back(Rank{rank});
  for (std::int32_t i = 0; i < count; ++i) {
    Op op = tiny_op(i, "link" + std::to_string(i), Phase::Forward);
    op.work = schedule::MemoryWork{.bytes = bytes, .flop = Flop(0)};
    plan.program.ops.push_back(op);
    add_run(role, op.id);
  }
  plan.roles.push_back(std::move(role));
  return plan;
}

schedule::ScheduledProgram contention_plan(const Program& workload, const TransferProbe& probe) {
  Program program = workload;
  program.name += " beside transfers";
  program.reductions.clear();
  std::erase_if(program.ops, [](const Op& op) { return op.phase == Phase::Optimizer; });
  // Its own gradients stay where they are: nobody reduces them here.
  add_transfers(program, probe);
  return lowered(program, probe);
}

}  // namespace dovetail::exec::cuda
