// Naming commands.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/describe.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "schedule/id_table.h"
#include "schedule/moved_bytes.h"
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

// The bucket whose collective each event follows; events recorded before one have none.
std::map<EventId, BucketId> buckets_of_events(const RankProgram& role) {
  std::map<StreamId, BucketId> last;
  std::map<EventId, BucketId> buckets;
  for (const Command& command : role.commands) {
    if (const auto* run = std::get_if<RunCollective>(&command.action)) {
      last[command.stream] = run->bucket;
    } else if (const auto* record = std::get_if<RecordEvent>(&command.action)) {
      const auto found = last.find(command.stream);
      if (found != last.end()) buckets.emplace(record->event, found->second);
    }
  }
  return buckets;
}

// The plan's ops and buckets, by id.
struct Tables {
  explicit Tables(const ScheduledProgram& of) : plan(of) {
    for (const Op& op : plan.program.ops) ops[op.id] = &op;
    for (const BucketLayout& bucket : plan.buckets) buckets[bucket.bucket] = &bucket;
  }
  const ScheduledProgram& plan;
  IdTable<OpId, const Op*> ops;
  IdTable<BucketId, const BucketLayout*> buckets;
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
    const std::string name =
        bucket ? bucket_text("enqueue", *bucket)
               : "enqueue " + tables.ops.at(std::get<RunOp>(command.action).op)->name;
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

CommandInfo op_info(const Tables& tables, const Command& command, const Op& op) {
  CommandInfo info;
  info.id = command.id;
  info.kind = SpanKind::Compute;
  info.phase = span_phase(op.phase);
  info.name = op.name;
  if (command.transfer) {
    info.kind = SpanKind::Collective;
    info.phase = SpanPhase::Communication;
    info.bytes = tables.plan.transfer(command).bytes;
  }
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

CommandInfo wait_info(const Command& command, const WaitEvent& wait,
                      const std::map<EventId, BucketId>& buckets) {
  const auto found = buckets.find(wait.event);
  if (found != buckets.end()) return bucket_info(command, SpanKind::Wait, found->second, "wait");
  CommandInfo info;
  info.id = command.id;
  info.kind = SpanKind::Wait;
  info.name = "wait";
  return info;
}

// What the events and records of one role stand for.
struct Meanings {
  std::map<EventId, BucketId> events;
  std::map<CommandId, Launched> launches;
};

std::optional<CommandInfo> command_info(const Tables& tables, const Command& command,
                                        const Meanings& meanings) {
  using Info = std::optional<CommandInfo>;
  return visit(
      command.action,
      [&](const RunOp& run) -> Info { return op_info(tables, command, *tables.ops.at(run.op)); },
      [&](const RunCollective& run) -> Info {
        CommandInfo info =
            bucket_info(command, SpanKind::Collective, run.bucket, to_string(run.kind));
        info.bytes = tables.plan.transfer(command).bytes;
        return info;
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
      [&](const WaitEvent& wait) -> Info { return wait_info(command, wait, meanings.events); },
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
    const Meanings meanings = {.events = buckets_of_events(role),
                               .launches = launches(tables, role)};
    for (const Command& command : role.commands) {
      if (auto info = command_info(tables, command, meanings)) result.push_back(std::move(*info));
    }
  }
  std::ranges::sort(result, {}, &CommandInfo::id);
  return result;
}

}  // namespace dovetail::schedule
