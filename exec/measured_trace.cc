// Names commands and turns clock readings into spans.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/measured_trace.h"

#include "base/error.h"
#include "schedule/visit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

namespace dovetail::exec {
namespace {

using schedule::Command;
using traces::CommandInfo;
using traces::SpanKind;
using traces::SpanPhase;

SpanPhase span_phase(schedule::Phase phase) {
  switch (phase) {
    case schedule::Phase::Forward:
      return SpanPhase::Forward;
    case schedule::Phase::Backward:
      return SpanPhase::Backward;
    case schedule::Phase::Optimizer:
      return SpanPhase::Optimizer;
  }
  return SpanPhase::Forward;
}

std::string bucket_text(std::string_view verb, BucketId bucket) {
  std::ostringstream out;
  out << verb << " bucket " << bucket;
  return out.str();
}

// The bucket whose collective each event follows; events recorded before one have none.
std::map<EventId, BucketId> buckets_of_events(const schedule::RankProgram& role) {
  std::map<StreamId, BucketId> last;
  std::map<EventId, BucketId> buckets;
  for (const Command& command : role.commands) {
    if (const auto* run = std::get_if<schedule::RunCollective>(&command.action)) {
      last[command.stream] = run->bucket;
    } else if (const auto* record = std::get_if<schedule::RecordEvent>(&command.action)) {
      const auto found = last.find(command.stream);
      const bool follows = found != last.end() && command.stream != schedule::kComputeStream;
      if (follows) buckets.emplace(record->event, found->second);
    }
  }
  return buckets;
}

// The records on the compute stream that open a launch, and the bucket launched first.
std::map<CommandId, BucketId> launches(const schedule::RankProgram& role) {
  std::map<CommandId, BucketId> buckets;
  const Command* open = nullptr;
  for (const Command& command : role.commands) {
    if (command.stream == schedule::kComputeStream) {
      const bool records = std::holds_alternative<schedule::RecordEvent>(command.action);
      open = records ? &command : nullptr;
    } else if (const auto* run = std::get_if<schedule::RunCollective>(&command.action)) {
      if (open != nullptr) buckets.emplace(open->id, run->bucket);
    }
  }
  return buckets;
}

CommandInfo op_info(const Command& command, const schedule::Op& op) {
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

CommandInfo wait_info(const Command& command, const schedule::WaitEvent& wait,
                      const std::map<EventId, BucketId>& buckets) {
  const auto found = buckets.find(wait.event);
  if (found != buckets.end()) return bucket_info(command, SpanKind::Wait, found->second, "wait");
  CommandInfo info;
  info.id = command.id;
  info.kind = SpanKind::Wait;
  info.name = "wait";
  return info;
}

Bytes moved_by(const schedule::ScheduledProgram& plan, const schedule::Copy& copy) {
  Bytes bytes;
  for (const TensorId id : copy.gradients) bytes += plan.program.tensor(id).bytes();
  return bytes;
}

// What the events and records of one role stand for.
struct Meanings {
  std::map<EventId, BucketId> events;
  std::map<CommandId, BucketId> launches;
};

std::optional<CommandInfo> command_info(const schedule::ScheduledProgram& plan,
                                        const Command& command, const Meanings& meanings) {
  using Info = std::optional<CommandInfo>;
  return schedule::visit(
      command.action,
      [&](const schedule::RunOp& run) -> Info {
        return op_info(command, plan.program.op(run.op));
      },
      [&](const schedule::RunCollective& run) -> Info {
        CommandInfo info = bucket_info(command, SpanKind::Collective, run.bucket,
                                       schedule::to_string(run.kind));
        info.bytes = plan.bucket(run.bucket).size;
        return info;
      },
      [&](const schedule::Copy& copy) -> Info {
        const bool packs = copy.direction == schedule::CopyDirection::Pack;
        CommandInfo info =
            bucket_info(command, SpanKind::Copy, copy.bucket, packs ? "pack" : "unpack");
        info.bytes = moved_by(plan, copy);
        return info;
      },
      [&](const schedule::RecordEvent&) -> Info {
        const auto launch = meanings.launches.find(command.id);
        if (launch == meanings.launches.end()) return std::nullopt;
        return bucket_info(command, SpanKind::Enqueue, launch->second, "enqueue");
      },
      [&](const schedule::WaitEvent& wait) -> Info {
        return wait_info(command, wait, meanings.events);
      });
}

// One collective of one step, as all its ranks know it.
using Meeting = std::tuple<std::int32_t, BucketId, schedule::Collective>;

class Assembly {
 public:
  Assembly(const schedule::ScheduledProgram& plan, std::span<const std::vector<Timing>> by_rank)
      : plan_(plan), by_rank_(by_rank) {
    for (const schedule::RankProgram& role : plan.roles) {
      for (const Command& command : role.commands) commands_[command.id] = &command;
      launches_.merge(launches(role));
    }
    find_origin();
    find_meetings();
  }

  [[nodiscard]] std::vector<traces::Span> spans() const {
    std::vector<traces::Span> spans;
    for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
      const std::vector<Timing>& timings = by_rank_[rank];
      for (std::size_t i = 0; i < timings.size(); ++i) {
        if (!shows(timings[i])) continue;
        spans.push_back(span(timings[i], Rank{static_cast<std::int32_t>(rank)}));
        if (launches_.contains(timings[i].command)) spans.back().end = launch_end(timings, i);
      }
    }
    std::stable_sort(spans.begin(), spans.end(), [](const traces::Span& a, const traces::Span& b) {
      return std::tie(a.rank, a.stream, a.start) < std::tie(b.rank, b.stream, b.start);
    });
    return spans;
  }

 private:
  [[nodiscard]] const Command& command(const Timing& timing) const {
    const auto found = commands_.find(timing.command);
    DOVETAIL_CHECK(found != commands_.end()) << "timing of unknown command " << timing.command;
    return *found->second;
  }
  [[nodiscard]] std::optional<Meeting> meeting(const Timing& timing) const {
    const Command& which = command(timing);
    const auto* run = std::get_if<schedule::RunCollective>(&which.action);
    if (run == nullptr || timing.stream != which.stream) return std::nullopt;
    return Meeting{timing.step, run->bucket, run->kind};
  }

  void find_origin() {
    for (const std::vector<Timing>& timings : by_rank_) {
      for (const Timing& timing : timings) {
        if (timing.step == 0) origin_ns_ = std::min(origin_ns_, timing.start_ns);
      }
    }
  }
  void find_meetings() {
    for (const std::vector<Timing>& timings : by_rank_) {
      for (const Timing& timing : timings) {
        const std::optional<Meeting> which = meeting(timing);
        if (!which) continue;
        std::int64_t& latest = last_arrival_.emplace(*which, timing.start_ns).first->second;
        latest = std::max(latest, timing.start_ns);
      }
    }
  }

  [[nodiscard]] bool shows(const Timing& timing) const {
    const Command& which = command(timing);
    if (timing.stream != which.stream) return false;  // while it was enqueued
    return schedule::visit(
        which.action, [](const schedule::RunOp&) { return true; },
        [](const schedule::RunCollective&) { return true; },
        [](const schedule::Copy&) { return true; },
        [&](const schedule::RecordEvent&) { return launches_.contains(which.id); },
        [&](const schedule::WaitEvent&) { return timing.end_ns > timing.start_ns; });
  }

  // A launch lasts until the last command that it enqueues.
  [[nodiscard]] Instant launch_end(const std::vector<Timing>& timings, std::size_t record) const {
    std::size_t last = record;
    for (std::size_t i = record + 1; i < timings.size(); ++i) {
      if (timings[i].stream != schedule::kComputeStream) continue;
      if (command(timings[i]).stream == schedule::kComputeStream) break;
      last = i;
    }
    return instant(timings[last].end_ns);
  }

  [[nodiscard]] Instant instant(std::int64_t ns) const {
    return Instant(Duration(ns - origin_ns_));
  }
  [[nodiscard]] traces::Span span(const Timing& timing, Rank rank) const {
    traces::Span span;
    span.command = timing.command;
    span.rank = rank;
    span.stream = timing.stream;
    span.step = timing.step;
    span.start = instant(timing.start_ns);
    span.end = instant(timing.end_ns);
    const std::optional<Meeting> which = meeting(timing);
    // An arrival is noted a moment after the stream began, so on a preempted rank the last one may
    // seem to lie after the end.
    if (which) span.transfer_start = std::min(instant(last_arrival_.at(*which)), span.end);
    return span;
  }

  const schedule::ScheduledProgram& plan_;
  std::span<const std::vector<Timing>> by_rank_;
  std::map<CommandId, const Command*> commands_;
  std::map<CommandId, BucketId> launches_;
  std::map<Meeting, std::int64_t> last_arrival_;
  std::int64_t origin_ns_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

std::vector<CommandInfo> command_infos(const schedule::ScheduledProgram& plan) {
  std::vector<CommandInfo> infos;
  for (const schedule::RankProgram& role : plan.roles) {
    const Meanings meanings = {.events = buckets_of_events(role), .launches = launches(role)};
    for (const Command& command : role.commands) {
      std::optional<CommandInfo> info = command_info(plan, command, meanings);
      if (info) infos.push_back(std::move(*info));
    }
  }
  std::sort(infos.begin(), infos.end(),
            [](const CommandInfo& a, const CommandInfo& b) { return a.id < b.id; });
  return infos;
}

traces::Trace measured_trace(const schedule::ScheduledProgram& plan,
                             std::span<const std::vector<Timing>> by_rank,
                             const traces::Provenance& provenance) {
  traces::Trace trace;
  trace.provenance = provenance;
  trace.provenance.origin = traces::Origin::Measured;
  trace.provenance.policy = plan.policy;
  trace.provenance.workload = plan.program.name;
  trace.world_size = plan.program.world_size;
  trace.steps = 0;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    trace.ranks.push_back(Rank{static_cast<std::int32_t>(rank)});
    for (const Timing& timing : by_rank[rank]) trace.steps = std::max(trace.steps, timing.step + 1);
  }
  for (const schedule::Stream& stream : plan.streams) {
    trace.streams.push_back({stream.id, stream.name});
  }
  trace.commands = command_infos(plan);
  trace.spans = Assembly(plan, by_rank).spans();
  return trace;
}

}  // namespace dovetail::exec
