// From a played Graph to a Trace.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "schedule/visit.h"

namespace dovetail::sim {
namespace {

using traces::CommandInfo;
using traces::SpanKind;
using traces::SpanPhase;

Instant instant(std::int64_t ns) { return Instant(Duration(ns)); }

SpanPhase phase_of(schedule::Phase phase) {
  switch (phase) {
    case schedule::Phase::Forward:
      return SpanPhase::Forward;
    case schedule::Phase::Backward:
      return SpanPhase::Backward;
    case schedule::Phase::Optimizer:
      return SpanPhase::Optimizer;
  }
  return SpanPhase::Communication;
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
    std::map<EventId, BucketId> events;  // completion event of each bucket's collective
    std::map<StreamId, BucketId> latest;
    for (const schedule::Command& command : program_.roles.front().commands) {
      CommandInfo info{.id = command.id, .name = {}, .bucket = {}, .bytes = {}};
      bool traced = true;
      schedule::visit(
          command.action,
          [&](const schedule::RunOp& run) {
            const schedule::Op& op = program_.program.op(run.op);
            info.kind = SpanKind::Compute;
            info.phase = phase_of(op.phase);
            info.name = op.name;
          },
          [&](const schedule::RunCollective& collective) {
            info.kind = SpanKind::Collective;
            info.bucket = collective.bucket;
            info.bytes = program_.bucket(collective.bucket).size;
            info.name = std::string(to_string(collective.kind)) + " bucket " +
                        std::to_string(collective.bucket.value);
            latest[command.stream] = collective.bucket;
          },
          [&](const schedule::Copy& copy) {
            info.kind = SpanKind::Copy;
            info.bucket = copy.bucket;
            for (const TensorId id : copy.gradients) {
              info.bytes += program_.program.tensor(id).bytes();
            }
            info.name = (copy.direction == schedule::CopyDirection::Pack ? "pack bucket "
                                                                         : "unpack bucket ") +
                        std::to_string(copy.bucket.value);
          },
          [&](const schedule::RecordEvent& record) {
            traced = false;
            if (const auto bucket = latest.find(command.stream); bucket != latest.end()) {
              events[record.event] = bucket->second;
            }
          },
          [&](const schedule::WaitEvent& wait) {
            info.kind = SpanKind::Wait;
            info.name = "wait";
            if (const auto bucket = events.find(wait.event); bucket != events.end()) {
              info.bucket = bucket->second;
              info.name += " bucket " + std::to_string(bucket->second.value);
            }
          });
      if (traced) trace_.commands.push_back(std::move(info));
    }
  }

  void add_spans(std::int32_t index) {
    const CommandNode& entry = graph_.command_nodes[static_cast<std::size_t>(index)];
    for (std::int32_t rank = 0; rank < graph_.ranks; ++rank) {
      const NodeId node = graph_.on_rank(index, rank);
      traces::Span span{.command = command(entry.command).id,
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
      const std::int64_t until = latest(wait.event, rank);
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
