// From a played Graph to a Trace.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "schedule/describe.h"
#include "sim/critical_path.h"
#include "traces/metrics.h"

namespace dovetail::sim {
namespace {

using traces::CommandInfo;
using traces::SpanKind;

Instant instant(std::int64_t ns) { return Instant(Duration(ns)); }

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
    trace_.ranks = graph_.rank_of_lane;
    std::ranges::sort(trace_.ranks);
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
    join_enqueues();
    return std::move(trace_);
  }

 private:
  [[nodiscard]] std::int64_t end(NodeId node) const {
    return timeline_.end[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] std::int64_t start(NodeId node) const {
    return timeline_.start[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] const schedule::Command& command(std::int32_t role, std::int32_t index) const {
    return program_.roles[static_cast<std::size_t>(role)].commands[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] Rank rank_of(std::int32_t lane) const {
    return graph_.rank_of_lane[static_cast<std::size_t>(lane)];
  }

  void describe_commands() {
    // Launches take time only where the host is the compute stream and charges for them.
    const auto enqueues = [](const CommandNode& entry) { return entry.kind == NodeKind::Enqueue; };
    const bool launches = std::ranges::any_of(graph_.command_nodes, enqueues);
    for (CommandInfo& command : schedule::describe_commands(program_)) {
      if (command.kind != SpanKind::Enqueue || launches)
        trace_.commands.push_back(std::move(command));
    }
  }

  // The trace shows an enqueue under the record that opens the launch, as the executor does.
  [[nodiscard]] CommandId shown_as(const CommandNode& entry) const {
    const schedule::Command& shown = command(entry.role, entry.command);
    return entry.kind == NodeKind::Enqueue ? shown.launch.value_or(shown.id) : shown.id;
  }

  void add_spans(std::int32_t index) {
    const CommandNode& entry = graph_.command_nodes[static_cast<std::size_t>(index)];
    if (entry.kind == NodeKind::WakeUp || entry.kind == NodeKind::Call) return;  // graph.h
    const LaneRange lanes = graph_.lanes_of(entry);
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const NodeId node = graph_.on_rank(index, lane);
      traces::Span span{.command = shown_as(entry),
                        .rank = rank_of(lane),
                        .stream = entry.stream,
                        .step = entry.step,
                        .start = instant(start(node)),
                        .end = instant(end(node)),
                        .transfer_start = {}};
      if (entry.kind == NodeKind::Collective) {
        span.transfer_start = span.start;
        span.start = instant(arrival(entry, node, lane));
      } else if (start(node) + graph_.launch_gap <= end(node)) {
        span.start = instant(start(node) + graph_.launch_gap);  // the gap itself is idle time
      }
      trace_.spans.push_back(span);
    }
  }

  // When this lane's stream reached the collective: its own predecessors, and those in which it
  // takes part.
  [[nodiscard]] std::int64_t arrival(const CommandNode& entry, NodeId node,
                                     std::int32_t lane) const {
    std::int64_t time = graph_.release.empty() ? 0 : entry.issued;
    for (const std::int32_t from : graph_.predecessors_of(node)) {
      if (graph_.takes_part(from, lane)) time = std::max(time, end(from));
    }
    return std::min(time, start(node));
  }

  // Collectives that are launched together are enqueued one after another behind one record: one
  // span.
  void join_enqueues() {
    std::set<CommandId> records;
    for (const CommandNode& entry : graph_.command_nodes) {
      if (entry.kind == NodeKind::Enqueue) records.insert(shown_as(entry));
    }
    if (records.empty()) return;
    std::vector<traces::Span> joined;
    for (const traces::Span& span : trace_.spans) {
      const bool same = !joined.empty() && records.contains(span.command) &&
                        std::tuple(joined.back().rank, joined.back().command, joined.back().step,
                                   joined.back().end) ==
                            std::tuple(span.rank, span.command, span.step, span.start);
      if (same) {
        joined.back().end = span.end;
      } else {
        joined.push_back(span);
      }
    }
    trace_.spans = std::move(joined);
  }

  void add_wait(const WaitRecord& wait) {
    const auto latest = [&](const std::vector<std::int32_t>& nodes, std::int32_t lane) {
      std::int64_t time = 0;
      for (const std::int32_t node : nodes) time = std::max(time, end(graph_.on_rank(node, lane)));
      return time;
    };
    // Idle communication streams always wait; only the compute stream's stalls are worth a span.
    if (wait.stream != schedule::kComputeStream) return;
    const LaneRange lanes = graph_.roles[static_cast<std::size_t>(wait.role)];
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const std::int64_t from = latest(wait.stream_before, lane);
      const std::int64_t event = latest(wait.event, lane);
      const std::int64_t until =
          wait.wake_up >= 0 ? end(graph_.on_rank(wait.wake_up, lane)) : event;
      if (until <= from) continue;
      trace_.spans.push_back({.command = command(wait.role, wait.command).id,
                              .rank = rank_of(lane),
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
  for (const Rank rank : graph.rank_of_lane) {
    contention.push_back(costs.contention(rank));
    any = any || !contention.back().none();
  }
  return any || graph.shares_links ? play_contended(graph, contention, workspace)
                                   : play_in_program_order(graph, workspace);
}

traces::Trace simulate(const schedule::ScheduledProgram& program, const models::Costs& costs,
                       const SimOptions& options) {
  const Graph graph = compile(program, costs, options.steps);
  Workspace workspace;
  play(graph, costs, workspace);
  return TraceBuilder(program, costs, graph, workspace.timeline).build();
}

Explained simulate_and_explain(const schedule::ScheduledProgram& program,
                               const models::Costs& costs, const SimOptions& options) {
  const Graph graph = compile(program, costs, options.steps);
  Workspace workspace;
  play(graph, costs, workspace);
  traces::Trace trace = TraceBuilder(program, costs, graph, workspace.timeline).build();
  const std::vector<traces::StepWindow> windows = traces::step_windows(trace);
  traces::CriticalPath path = critical_path(program, graph, workspace.timeline, windows);
  return {std::move(trace), std::move(path)};
}

}  // namespace dovetail::sim
