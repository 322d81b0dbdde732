// From a played Graph to a Trace.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "schedule/describe.h"

namespace dovetail::sim {
namespace {

using traces::CommandInfo;
using traces::SpanKind;
using traces::SpanPhase;

Instant instant(std::int64_t ns) { return Instant(Duration(ns)); }

SpanPhase span_phase(const std::optional<schedule::Phase>& phase) {
  if (!phase) return SpanPhase::Communication;
  switch (*phase) {
    case schedule::Phase::Forward:
      return SpanPhase::Forward;
    case schedule::Phase::Backward:
      return SpanPhase::Backward;
    case schedule::Phase::Optimizer:
      return SpanPhase::Optimizer;
  }
  return SpanPhase::Communication;
}

SpanKind span_kind(schedule::CommandKind kind) {
  switch (kind) {
    case schedule::CommandKind::Compute:
      return SpanKind::Compute;
    case schedule::CommandKind::Copy:
      return SpanKind::Copy;
    case schedule::CommandKind::Collective:
      return SpanKind::Collective;
    case schedule::CommandKind::Wait:
      return SpanKind::Wait;
    case schedule::CommandKind::Launch:
      return SpanKind::Enqueue;
  }
  return SpanKind::Compute;
}

class TraceBuilder {
 public:
  TraceBuilder(const schedule::ScheduledProgram& program, const models::Costs& costs,
               const Graph& graph, const Timeline& timeline)
      : program_(program), graph_(graph), timeline_(timeline) {
    trace_.provenance = {.origin = traces::Origin::Simulated,
                         .machine = costs.machine,
                         .policy = program.policy,
                         .workload = program.program.name,
                         .backend = "sim",
                         .notes = {}};
    trace_.world_size = program.program.world_size;
    trace_.steps = graph.steps;
  }

  traces::Trace build() {
    for (std::int32_t rank = 0; rank < graph_.ranks; ++rank) trace_.ranks.push_back(Rank{rank});
    for (const schedule::Stream& stream : program_.streams) {
      trace_.streams.push_back({stream.id, stream.name});
    }
    describe_commands();
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(graph_.command_nodes.size()); ++c) {
      add_spans(c);
    }
    for (const WaitRecord& wait : graph_.waits) add_wait(wait);
    std::ranges::sort(trace_.spans, {}, [](const traces::Span& span) {
      return std::tuple(span.rank, span.stream, span.start, span.end, span.command);
    });
    return std::move(trace_);
  }

 private:
  [[nodiscard]] std::int64_t end(NodeId node) const {
    return timeline_.end[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] std::int64_t start(NodeId node) const {
    return timeline_.start[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] const schedule::Command& command(std::int32_t index) const {
    return program_.roles.front().commands[static_cast<std::size_t>(index)];
  }

  void describe_commands() {
    // Launches take time only where the host is the compute stream and charges for them.
    const auto enqueues = [](const CommandNode& entry) { return entry.kind == NodeKind::Enqueue; };
    const bool launches = std::ranges::any_of(graph_.command_nodes, enqueues);
    const std::vector<schedule::Command>& commands = program_.roles.front().commands;
    for (const schedule::CommandDescription& command : schedule::describe_commands(program_)) {
      const bool launch = command.kind == schedule::CommandKind::Launch;
      if (launch && !launches) continue;
      trace_.commands.push_back({.id = command.id,
                                 .kind = span_kind(command.kind),
                                 .phase = span_phase(command.phase),
                                 .name = command.name,
                                 .bucket = command.bucket,
                                 .bytes = command.bytes});
      if (launch) launch_of_[*command.bucket] = command.id;
    }
    for (const schedule::Command& command : commands) {
      const auto* collective = std::get_if<schedule::RunCollective>(&command.action);
      if (collective != nullptr) bucket_of_[command.id] = collective->bucket;
    }
  }

  // The trace shows an enqueue under the record that opens the launch, as the executor does.
  [[nodiscard]] CommandId shown_as(const CommandNode& entry) const {
    const CommandId id = command(entry.command).id;
    if (entry.kind != NodeKind::Enqueue) return id;
    const auto launch = launch_of_.find(bucket_of_.at(id));
    return launch == launch_of_.end() ? id : launch->second;
  }

  void add_spans(std::int32_t index) {
    const CommandNode& entry = graph_.command_nodes[static_cast<std::size_t>(index)];
    if (entry.kind == NodeKind::WakeUp) return;  // part of its wait
    for (std::int32_t rank = 0; rank < graph_.ranks; ++rank) {
      const NodeId node = graph_.on_rank(index, rank);
      traces::Span span{.command = shown_as(entry),
                        .rank = Rank{rank},
                        .stream = entry.stream,
                        .step = entry.step,
                        .start = instant(start(node)),
                        .end = instant(end(node)),
                        .transfer_start = {}};
      if (entry.kind == NodeKind::Collective) {
        span.transfer_start = span.start;
        span.start = instant(arrival(node, rank));
      } else if (start(node) + graph_.launch_gap <= end(node)) {
        span.start = instant(start(node) + graph_.launch_gap);  // the gap itself is idle time
      }
      trace_.spans.push_back(span);
    }
  }

  // When this rank's stream reached the collective: its own predecessors, and those that all ranks
  // share.
  [[nodiscard]] std::int64_t arrival(NodeId node, std::int32_t rank) const {
    std::int64_t time = 0;
    for (const std::int32_t from : graph_.predecessors_of(node)) {
      const CommandNode& entry = graph_.command_nodes[static_cast<std::size_t>(
          graph_.command_node[static_cast<std::size_t>(from)])];
      if (entry.count == 1 || from - entry.first == rank) time = std::max(time, end(from));
    }
    if (!graph_.release.empty()) {
      time = std::max(time, graph_.release[static_cast<std::size_t>(node)]);
    }
    return std::min(time, start(node));
  }

  void add_wait(const WaitRecord& wait) {
    const auto latest = [&](const std::vector<std::int32_t>& nodes, std::int32_t rank) {
      std::int64_t time = 0;
      for (const std::int32_t node : nodes) time = std::max(time, end(graph_.on_rank(node, rank)));
      return time;
    };
    for (std::int32_t rank = 0; rank < graph_.ranks; ++rank) {
      const std::int64_t from = latest(wait.stream_before, rank);
      const std::int64_t event = latest(wait.event, rank);
      const std::int64_t until =
          wait.wake_up >= 0 ? end(graph_.on_rank(wait.wake_up, rank)) : event;
      // Idle communication streams always wait; only the compute stream's stalls are worth a span.
      if (until <= from || wait.stream != schedule::kComputeStream) continue;
      trace_.spans.push_back({.command = command(wait.command).id,
                              .rank = Rank{rank},
                              .stream = wait.stream,
                              .step = wait.step,
                              .start = instant(from),
                              .end = instant(until),
                              .transfer_start = {}});
    }
  }

  const schedule::ScheduledProgram& program_;
  const Graph& graph_;
  const Timeline& timeline_;
  traces::Trace trace_;
  std::map<BucketId, CommandId> launch_of_;
  std::map<CommandId, BucketId> bucket_of_;
};

}  // namespace

std::int64_t play(const Graph& graph, const models::Costs& costs, Workspace& workspace) {
  std::vector<models::Contention> contention;
  bool any = false;
  for (std::int32_t rank = 0; rank < graph.ranks; ++rank) {
    contention.push_back(costs.contention ? costs.contention(Rank{rank}) : models::Contention{});
    any = any || !contention.back().none();
  }
  return any ? play_contended(graph, contention, workspace)
             : play_in_program_order(graph, workspace);
}

traces::Trace simulate(const schedule::ScheduledProgram& program, const models::Costs& costs,
                       const SimOptions& options) {
  const Graph graph = compile(program, costs, options.steps);
  Workspace workspace;
  play(graph, costs, workspace);
  return TraceBuilder(program, costs, graph, workspace.timeline).build();
}

}  // namespace dovetail::sim
