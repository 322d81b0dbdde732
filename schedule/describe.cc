// Naming commands.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/describe.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "schedule/moved_bytes.h"
#include "schedule/visit.h"

namespace dovetail::schedule {
namespace {

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

// Of an op that communicates.
const CollectiveWork* collective_work(const ScheduledProgram& plan, const Command& command) {
  const auto* run = std::get_if<RunOp>(&command.action);
  return run == nullptr ? nullptr : std::get_if<CollectiveWork>(&plan.program.op(run->op).work);
}

// What a launch enqueues first.
struct Launched {
  std::optional<BucketId> bucket;
  std::string name;
};

// The records on the compute stream that open a launch.
std::map<CommandId, Launched> launches(const ScheduledProgram& plan, const RankProgram& role) {
  std::map<CommandId, Launched> launched;
  const Command* open = nullptr;
  for (const Command& command : role.commands) {
    if (command.stream == kComputeStream) {
      const bool records = std::holds_alternative<RecordEvent>(command.action);
      open = records ? &command : nullptr;
    } else if (open == nullptr) {
      continue;
    } else if (const auto* run = std::get_if<RunCollective>(&command.action)) {
      launched.emplace(open->id, Launched{run->bucket, bucket_text("enqueue", run->bucket)});
    } else if (collective_work(plan, command) != nullptr) {
      const Op& op = plan.program.op(std::get<RunOp>(command.action).op);
      launched.emplace(open->id, Launched{std::nullopt, "enqueue " + op.name});
    }
  }
  return launched;
}

CommandDescription op_info(const Command& command, const Op& op) {
  CommandDescription info;
  info.id = command.id;
  info.kind = CommandKind::Compute;
  info.phase = op.phase;
  info.name = op.name;
  if (const auto* work = std::get_if<CollectiveWork>(&op.work)) {
    info.kind = CommandKind::Collective;
    info.phase = std::nullopt;
    info.bytes = work->bytes;
  }
  return info;
}

CommandDescription bucket_info(const Command& command, CommandKind kind, BucketId bucket,
                               std::string_view verb) {
  CommandDescription info;
  info.id = command.id;
  info.kind = kind;
  info.name = bucket_text(verb, bucket);
  info.bucket = bucket;
  return info;
}

CommandDescription wait_info(const Command& command, const WaitEvent& wait,
                             const std::map<EventId, BucketId>& buckets) {
  const auto found = buckets.find(wait.event);
  if (found != buckets.end()) return bucket_info(command, CommandKind::Wait, found->second, "wait");
  CommandDescription info;
  info.id = command.id;
  info.kind = CommandKind::Wait;
  info.name = "wait";
  return info;
}

// What the events and records of one role stand for.
struct Meanings {
  std::map<EventId, BucketId> events;
  std::map<CommandId, Launched> launches;
};

std::optional<CommandDescription> command_info(const ScheduledProgram& plan, const Command& command,
                                               const Meanings& meanings) {
  using Info = std::optional<CommandDescription>;
  return visit(
      command.action,
      [&](const RunOp& run) -> Info { return op_info(command, plan.program.op(run.op)); },
      [&](const RunCollective& run) -> Info {
        CommandDescription info =
            bucket_info(command, CommandKind::Collective, run.bucket, to_string(run.kind));
        info.bytes = moved_bytes(plan.bucket(run.bucket), run);
        return info;
      },
      [&](const Copy& copy) -> Info {
        const bool packs = copy.direction == CopyDirection::Pack;
        CommandDescription info =
            bucket_info(command, CommandKind::Copy, copy.bucket, packs ? "pack" : "unpack");
        info.bytes = moved_bytes(plan.program, plan.bucket(copy.bucket), copy);
        return info;
      },
      [&](const RecordEvent&) -> Info {
        const auto launch = meanings.launches.find(command.id);
        if (launch == meanings.launches.end()) return std::nullopt;
        CommandDescription info;
        info.id = command.id;
        info.kind = CommandKind::Launch;
        info.name = launch->second.name;
        info.bucket = launch->second.bucket;
        return info;
      },
      [&](const WaitEvent& wait) -> Info { return wait_info(command, wait, meanings.events); },
      [&](const Scale& scale) -> Info {
        CommandDescription info = bucket_info(command, CommandKind::Copy, scale.bucket, "scale");
        info.bytes = moved_bytes(plan.bucket(scale.bucket), scale);
        return info;
      });
}

}  // namespace

std::vector<CommandDescription> describe_commands(const ScheduledProgram& plan) {
  std::vector<CommandDescription> result;
  for (const RankProgram& role : plan.roles) {
    const Meanings meanings = {.events = buckets_of_events(role), .launches = launches(plan, role)};
    for (const Command& command : role.commands) {
      if (auto info = command_info(plan, command, meanings)) result.push_back(std::move(*info));
    }
  }
  std::ranges::sort(result, {}, &CommandDescription::id);
  return result;
}

}  // namespace dovetail::schedule
