// Builds the plans that a calibration executes: Programs whose gradients nobody computes, lowered
// as any other Program is, with an op in front that keeps the device busy while the transfers are
// enqueued.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/probes.h"

#include "base/error.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "schedule/transfers.h"
#include "schedule/verify/verify.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dovetail::calibrate {
namespace {

using schedule::Op;
using schedule::Phase;
using schedule::Program;
using schedule::Tensor;
using schedule::TensorKind;

constexpr Bytes kTiny = kib(4);

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

GroupId add_group(Program& program, const ProbeGroup& group) {
  std::int32_t id = 0;
  for (const schedule::ProcessGroup& known : program.groups) id = std::max(id, known.id.value + 1);
  program.groups.push_back(process_group(GroupId{id}, program.world_size, group));
  return GroupId{id};
}

Op tiny_op(std::int32_t id, std::string name, Phase phase) {
  Op op;
  op.id = OpId{id};
  op.name = std::move(name);
  op.phase = phase;
  op.work = moving(kTiny);
  return op;
}

// Puts the transfers around what the program has: one op at the start writes all gradients, one at
// the end reads them.
void add_transfers(Program& program, const TransferProbe& probe) {
  const GroupId group = add_group(program, probe.group);
  std::int32_t tensor = first_free_tensor(program);
  const std::int32_t op = first_free_op(program);
  Op writer = tiny_op(op, "probe.begin", Phase::Forward);
  writer.work = moving(probe.head_start);
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

// Waits for the last transfer first: else a host that computes is woken by each of them while the next one runs.
void wait_backwards(schedule::RankProgram& role) {
  std::vector<schedule::Command*> waits;
  for (schedule::Command& command : role.commands) {
    const bool is_wait = std::holds_alternative<schedule::WaitEvent>(command.action);
    if (is_wait && command.stream == schedule::kComputeStream) waits.push_back(&command);
  }
  for (std::size_t i = 0; i < waits.size() / 2; ++i) {
    std::swap(*waits[i], *waits[waits.size() - 1 - i]);
  }
}

schedule::ScheduledProgram lowered(const Program& program, const TransferProbe& probe,
                                   std::span<const OpId> behind = {}) {
  const std::vector<std::string> wrong = problems(program);
  DOVETAIL_CHECK(wrong.empty()) << wrong.front();
  const schedule::Policy spec =
      schedule::placed(schedule::parse_policy("per-tensor"), {.mode = probe.mode});
  schedule::Schedule made = schedule::make_schedule(program, spec);
  made.scale = probe.scale;
  for (schedule::Bucket& bucket : made.buckets) bucket.max_ctas = probe.max_ctas;
  for (std::size_t i = 0; i < behind.size(); ++i) {
    made.buckets.at(i).launch = schedule::LaunchAfterOp{behind[i]};
  }
  schedule::ScheduledProgram plan = schedule::lower(program, made).program;
  for (schedule::RankProgram& role : plan.roles) wait_backwards(role);
  const std::vector<schedule::Problem> illegal = schedule::verify(program, plan, made.merge);
  DOVETAIL_CHECK(illegal.empty()) << illegal.front().message;
  return plan;
}

// With as many elements as every rank of a group can have an equal part of.
TransferProbe rounded(TransferProbe probe) {
  const std::int64_t whole = 4 * (probe.group.ranks > 0 ? probe.group.ranks : probe.ranks);
  probe.bytes = Bytes(std::max<std::int64_t>(1, (probe.bytes.count() + whole - 1) / whole) * whole);
  return probe;
}

std::int32_t first_free_command(const schedule::ScheduledProgram& plan) {
  std::int32_t id = 0;
  for (const schedule::RankProgram& role : plan.roles) {
    for (const schedule::Command& command : role.commands) {
      id = std::max(id, command.id.value + 1);
    }
  }
  return id;
}

// Every all-reduce as a reduce-scatter; behind the last of them the all-gathers, each followed by the
// event that told of its all-reduce.
std::vector<schedule::Command> halved(const std::vector<schedule::Command>& commands,
                                      std::int32_t free_id) {
  std::vector<schedule::Command> before;  // up to the last reduce-scatter
  std::vector<schedule::Command> gathers;
  std::vector<schedule::Command> after;
  std::optional<StreamId> stream;
  for (const schedule::Command& command : commands) {
    const auto* reduce = std::get_if<schedule::Communicate>(&command.action);
    if (reduce != nullptr) {
      stream = command.stream;
      before.insert(before.end(), after.begin(), after.end());
      after.clear();
      schedule::Communicate half = *reduce;
      half.kind = schedule::Collective::ReduceScatter;
      before.push_back({.id = command.id, .stream = command.stream, .action = half});
      half.kind = schedule::Collective::AllGather;
      gathers.push_back({.id = CommandId{free_id++}, .stream = command.stream, .action = half});
    } else if (stream == command.stream &&
               std::holds_alternative<schedule::RecordEvent>(command.action)) {
      gathers.push_back(command);
    } else {
      after.push_back(command);
    }
  }
  before.insert(before.end(), gathers.begin(), gathers.end());
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

schedule::Command command_of(std::int32_t id, std::int32_t stream, schedule::Action action) {
  return {.id = CommandId{id}, .stream = StreamId{stream}, .action = std::move(action)};
}

// A role of `ranks` that runs the ops: the first on the compute stream, the others behind it on the
// communication stream.
schedule::RankProgram role_of_messages(std::vector<Rank> ranks, const Program& program,
                                       std::int32_t free_id) {
  schedule::RankProgram role;
  role.ranks = std::move(ranks);
  const auto add = [&](std::int32_t stream, schedule::Action action) {
    role.commands.push_back(command_of(free_id++, stream, std::move(action)));
  };
  const EventId begun{2 * free_id};
  const EventId ended{2 * free_id + 1};
  add(0, schedule::RunOp{.op = program.ops.front().id});
  add(0, schedule::RecordEvent{begun});
  add(1, schedule::WaitEvent{begun});
  for (std::size_t i = 1; i < program.ops.size(); ++i) {
    add(1, schedule::action_of(program.ops[i]));
  }
  add(1, schedule::RecordEvent{ended});
  add(0, schedule::WaitEvent{ended});
  return role;
}

}  // namespace

schedule::ProcessGroup process_group(GroupId id, std::int64_t world, const ProbeGroup& group) {
  schedule::ProcessGroup all;
  all.id = id;
  all.name = "probe";
  const std::int64_t size = group.ranks > 0 ? group.ranks : world;
  const std::int64_t instances = world / size;
  DOVETAIL_CHECK(instances >= 1 && (world % size == 0 || size == 2)) << size << " of " << world;
  for (std::int64_t instance = 0; instance < instances; ++instance) {
    for (std::int64_t index = 0; index < size; ++index) {
      const std::int64_t rank =
          group.spacing == Spacing::InARow ? instance * size + index : index * instances + instance;
      all.ranks.push_back(Rank{static_cast<std::int32_t>(rank)});
    }
  }
  if (size < world) all.instance_size = size;
  return all;
}

schedule::ScheduledProgram halves_plan(const TransferProbe& probe) {
  schedule::ScheduledProgram plan = transfer_plan(rounded(probe));
  for (schedule::BucketLayout& bucket : plan.buckets) {
    bucket.shards = plan.program.groups.back().size();
    if (bucket.shards > 1) bucket.cut_over = plan.program.groups.back().id;
  }
  for (schedule::RankProgram& role : plan.roles) {
    role.commands = halved(role.commands, first_free_command(plan));
  }
  schedule::link_transfers(plan);
  return plan;
}

schedule::ScheduledProgram messages_plan(schedule::Collective kind, const TransferProbe& given) {
  const TransferProbe probe = rounded(given);
  schedule::ScheduledProgram plan = chain_plan(probe.ranks, 1, moving(probe.head_start));
  plan.program.name = "messages";
  plan.streams.push_back({.id = StreamId{1}, .name = "comm0"});
  const GroupId group = add_group(plan.program, probe.group);
  for (std::int64_t i = 1; i <= probe.count; ++i) {
    Op op = tiny_op(static_cast<std::int32_t>(i), "message" + std::to_string(i), Phase::Forward);
    op.work = schedule::CollectiveWork{.kind = kind, .group = group, .bytes = probe.bytes};
    plan.program.ops.push_back(op);
  }
  const std::vector<Rank>& meet = plan.program.group(group).ranks;
  const std::vector<Rank> all = plan.roles.front().ranks;
  plan.roles = {role_of_messages(meet, plan.program, 0)};
  std::vector<Rank> others;
  for (const Rank rank : all) {
    if (std::find(meet.begin(), meet.end(), rank) == meet.end()) others.push_back(rank);
  }
  if (!others.empty()) {
    plan.roles.push_back({.ranks = others, .commands = {}});
    plan.roles.back().commands.push_back(command_of(
        first_free_command(plan), 0, schedule::RunOp{.op = plan.program.ops.front().id}));
  }
  schedule::link_transfers(plan);
  return plan;
}

schedule::ScheduledProgram transfer_plan(const TransferProbe& probe) {
  Program program;
  program.name = "transfers";
  program.world_size = probe.ranks;
  add_transfers(program, probe);
  return lowered(program, probe);
}

schedule::ScheduledProgram chain_plan(std::int64_t ranks, std::int64_t count,
                                      const schedule::Work& work) {
  schedule::ScheduledProgram plan;
  plan.program.name = "chain";
  plan.program.world_size = ranks;
  plan.policy = "chain";
  plan.streams = {{.id = schedule::kComputeStream, .name = "compute"}};
  schedule::RankProgram role;
  for (std::int32_t rank = 0; rank < ranks; ++rank) role.ranks.push_back(Rank{rank});
  for (std::int32_t i = 0; i < count; ++i) {
    Op op = tiny_op(i, "link" + std::to_string(i), Phase::Forward);
    op.work = work;
    plan.program.ops.push_back(op);
    schedule::Command command = command_of(i, 0, schedule::RunOp{.op = op.id});
    role.commands.push_back(std::move(command));
  }
  plan.roles.push_back(std::move(role));
  return plan;
}

namespace {

// Forward and backward of the workload with transfers. Its own gradients stay where they are: nobody reduces them here.
Program with_transfers(Program program, const TransferProbe& probe) {
  program.name += " beside transfers";
  program.reductions.clear();
  std::erase_if(program.ops, [](const Op& op) { return op.phase == Phase::Optimizer; });
  add_transfers(program, probe);
  return program;
}

}  // namespace

schedule::ScheduledProgram contention_plan(const Program& workload, const TransferProbe& probe) {
  return lowered(with_transfers(workload, probe), probe);
}

schedule::ScheduledProgram lone_plan(const Program& workload, const TransferProbe& probe,
                                     std::span<const OpId> behind) {
  return lowered(with_transfers(workload, probe), probe, behind);
}

}  // namespace dovetail::calibrate
