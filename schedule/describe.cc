// Gives each command of a plan the name, phase, sizes and tensors under which traces and reports
// show it, in one walk over the commands of each role: what a wait waits for follows from the
// events recorded before it.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/describe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "schedule/collective_traits.h"
#include "schedule/id_table.h"
#include "schedule/moved_bytes.h"
#include "schedule/transfers.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

using traces::CommandInfo;
using traces::SpanKind;
using traces::SpanPhase;

std::string bucket_text(std::string_view verb, BucketId bucket) {
  std::ostringstream out;
  out << verb << " bucket " << bucket;
  return out.str();
}

// What an event follows on its stream: the last collective of a bucket, and the last command that does
// something; each absent before the first one.
struct Before {
  std::optional<BucketId> bucket;
  std::optional<CommandId> command;
  std::optional<OpId> op;  // of that command
};

std::map<EventId, Before> before_events(const RankProgram& role) {
  std::map<StreamId, Before> last;
  std::map<EventId, Before> events;
  for (const Command& command : role.commands) {
    if (const auto* record = std::get_if<RecordEvent>(&command.action)) {
      events.emplace(record->event, last[command.stream]);
    } else if (!std::holds_alternative<WaitEvent>(command.action) &&
               !std::holds_alternative<Release>(command.action)) {
      Before& before = last[command.stream];
      before.command = command.id;
      before.op = op_run_by(command);
      if (const Communicate* of_bucket = bucket_collective(command))
        before.bucket = of_bucket->bucket;
    }
  }
  return events;
}

// The plan's ops and buckets, by id.
struct Tables {
  explicit Tables(const ScheduledProgram& of) : plan(of) {
    for (const Op& op : plan.program.ops) ops[op.id] = &op;
    for (const BucketLayout& bucket : plan.buckets) buckets[bucket.bucket] = &bucket;
    for (const Tensor& tensor : plan.program.tensors) tensors[tensor.id] = &tensor;
  }
  const ScheduledProgram& plan;
  IdTable<OpId, const Op*> ops;
  IdTable<BucketId, const BucketLayout*> buckets;
  IdTable<TensorId, const Tensor*> tensors;
};

// What a launch enqueues first.
struct Launched {
  std::optional<BucketId> bucket;
  std::string name;
};

// The records on the compute stream that open a launch.
std::map<CommandId, Launched> launches(const Tables& tables, const RankProgram& role) {
  std::map<CommandId, Launched> launched;
  for (const Command& command : role.commands) {
    if (!command.launch) continue;
    const std::optional<BucketId> bucket = tables.plan.transfer(command).bucket;
    const std::string name = bucket ? bucket_text("enqueue", *bucket)
                                    : "enqueue " + tables.ops.at(*op_run_by(command))->name;
    launched.emplace(*command.launch, Launched{bucket, name});
  }
  return launched;
}

SpanPhase span_phase(Phase phase) {
  switch (phase) {
    case Phase::Forward:
      return SpanPhase::Forward;
    case Phase::Backward:
      return SpanPhase::Backward;
    case Phase::Optimizer:
      return SpanPhase::Optimizer;
  }
  return SpanPhase::Communication;
}

// What a description takes from the commands before its own.
struct Meanings {
  std::map<EventId, Before> events;
  std::map<CommandId, Launched> launches;
  IdTable<TensorId, std::optional<CommandId>> writers;  // the last op until here
};

// Sizes and launch of what communicates.
void add_transfer(CommandInfo& info, const Tables& tables, const Command& command) {
  const Transfer& transfer = tables.plan.transfer(command);
  const std::int64_t ranks = tables.plan.program.group(transfer.group).size();
  info.bytes = transfer.bytes;
  info.bus_bytes = Bytes(
      std::llround(static_cast<double>(transfer.bytes.count()) * bus_factor(transfer.kind, ranks)));
  info.after = command.launch;
}

CommandInfo op_info(const Command& command, const Op& op) {
  CommandInfo info;
  info.id = command.id;
  info.kind = SpanKind::Compute;
  info.phase = span_phase(op.phase);
  info.name = op.name;
  return info;
}

CommandInfo bucket_info(const Command& command, SpanKind kind, BucketId bucket,
                        std::string_view verb) {
  CommandInfo info;
  info.id = command.id;
  info.kind = kind;
  info.name = bucket_text(verb, bucket);
  info.bucket = bucket;
  return info;
}

CommandInfo collective_info(const Tables& tables, const Command& command, const Communicate& run,
                            const Meanings& meanings) {
  CommandInfo info;
  info.id = command.id;
  info.kind = SpanKind::Collective;
  info.name = run.op ? tables.ops.at(*run.op)->name : bucket_text(to_string(run.kind), *run.bucket);
  info.phase = SpanPhase::Communication;
  info.bucket = run.bucket;
  add_transfer(info, tables, command);
  if (!run.bucket) return info;
  // What is gathered was written by an update, or before the step.
  const bool reduces = run.kind != Collective::AllGather;
  for (const BucketMember& member : tables.buckets.at(*run.bucket)->members) {
    const Tensor& tensor = *tables.tensors.at(member.tensor);
    info.tensors.push_back({tensor.name, element_size(tensor.dtype) * member.elements(tensor),
                            reduces ? meanings.writers.at(member.tensor) : std::nullopt});
  }
  return info;
}

CommandInfo wait_info(const Tables& tables, const Command& command, const Before& before) {
  CommandInfo info;
  if (before.bucket) {
    info = bucket_info(command, SpanKind::Wait, *before.bucket, "wait");
  } else {
    info.id = command.id;
    info.kind = SpanKind::Wait;
    info.name = before.op ? "wait for " + tables.ops.at(*before.op)->name : "wait";
  }
  info.after = before.command;
  return info;
}

std::optional<CommandInfo> command_info(const Tables& tables, const Command& command,
                                        const Meanings& meanings) {
  using Info = std::optional<CommandInfo>;
  return visit(
      command.action,
      [&](const RunOp& run) -> Info { return op_info(command, *tables.ops.at(run.op)); },
      [&](const Communicate& run) -> Info {
        return collective_info(tables, command, run, meanings);
      },
      [&](const Copy& copy) -> Info {
        const bool packs = copy.direction == CopyDirection::Pack;
        CommandInfo info =
            bucket_info(command, SpanKind::Copy, copy.bucket, packs ? "pack" : "unpack");
        info.bytes = moved_bytes(tables.plan.program, *tables.buckets.at(copy.bucket), copy);
        return info;
      },
      [&](const RecordEvent&) -> Info {
        const auto launch = meanings.launches.find(command.id);
        if (launch == meanings.launches.end()) return std::nullopt;
        CommandInfo info;
        info.id = command.id;
        info.kind = SpanKind::Enqueue;
        info.name = launch->second.name;
        info.bucket = launch->second.bucket;
        return info;
      },
      [&](const WaitEvent& wait) -> Info {
        const auto event = meanings.events.find(wait.event);
        return wait_info(tables, command,
                         event == meanings.events.end() ? Before{} : event->second);
      },
      [&](const Scale& scale) -> Info {
        CommandInfo info = bucket_info(command, SpanKind::Copy, scale.bucket, "scale");
        info.bytes = moved_bytes(*tables.buckets.at(scale.bucket), scale);
        return info;
      },
      [](const Release&) -> Info { return std::nullopt; });
}

}  // namespace

std::vector<traces::CommandInfo> describe_commands(const ScheduledProgram& plan) {
  std::vector<CommandInfo> result;
  const Tables tables(plan);
  for (const RankProgram& role : plan.roles) {
    Meanings meanings;
    meanings.events = before_events(role);
    meanings.launches = launches(tables, role);
    for (const Command& command : role.commands) {
      if (auto info = command_info(tables, command, meanings)) result.push_back(std::move(*info));
      const std::optional<OpId> op = op_run_by(command);
      if (!op) continue;
      for (const TensorId tensor : tables.ops.at(*op)->writes) {
        meanings.writers[tensor] = command.id;
      }
    }
  }
  std::ranges::sort(result, {}, &CommandInfo::id);
  return result;
}

}  // namespace dovetail::schedule
