// Turns a played graph into a Trace: every command node gives a span on each lane of its role, and a wait on the compute
// stream one for as long as the stream stood there.
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
               const CompiledProgram& compiled, const Timeline& timeline)
      : program_(program), compiled_(compiled), graph_(compiled.graph), timeline_(timeline) {
    trace_.provenance = {.origin = traces::Origin::Simulated,
                         .machine = costs.machine,
                         .policy = program.policy,
                         .workload = program.program.name,
                         .backend = "sim",
                         .notes = {}};
    trace_.world_size = program.program.world_size;
    trace_.steps = graph_.steps();
  }

  traces::Trace build() {
    trace_.ranks = compiled_.rank_of_lane;
    std::ranges::sort(trace_.ranks);
    for (const schedule::Stream& stream : program_.streams) {
      trace_.streams.push_back({stream.id, stream.name});
    }
    describe_commands();
    for (const CommandNode& entry : compiled_.command_nodes) add_spans(entry);
    for (const WaitRecord& wait : compiled_.waits) add_wait(wait);
    std::ranges::sort(trace_.spans, {}, [](const traces::Span& span) {
      return std::tuple(span.rank, span.stream, span.start, span.end, span.command);
    });
    join_enqueues();
    return std::move(trace_);
  }

 private:
  [[nodiscard]] std::int64_t end(NodeId node) const { return timeline_.end_of(node); }
  [[nodiscard]] std::int64_t start(NodeId node) const { return timeline_.start_of(node); }
  [[nodiscard]] const schedule::Command& command(std::int32_t role, std::int32_t index) const {
    return program_.roles[static_cast<std::size_t>(role)].commands[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] Rank rank_of(std::int32_t lane) const {
    return compiled_.rank_of_lane[static_cast<std::size_t>(lane)];
  }

  void describe_commands() {
    // Launches take time only where the host is the compute stream and charges for them.
    const bool launches = std::ranges::count(graph_.kind, NodeKind::Enqueue) > 0;
    for (CommandInfo& command : schedule::describe_commands(program_)) {
      if (command.kind != SpanKind::Enqueue || launches)
        trace_.commands.push_back(std::move(command));
    }
  }

  [[nodiscard]] bool is_enqueue(const CommandNode& entry) const {
    return compiled_.kind_of(entry) == NodeKind::Enqueue;
  }

  // The trace shows an enqueue under the record that opens the launch, as the executor does.
  [[nodiscard]] CommandId shown_as(const CommandNode& entry) const {
    const schedule::Command& shown = command(entry.role, entry.command);
    return is_enqueue(entry) ? shown.launch.value_or(shown.id) : shown.id;
  }

  void add_spans(const CommandNode& entry) {
    const NodeKind kind = compiled_.kind_of(entry);
    if (kind == NodeKind::WakeUp || kind == NodeKind::Call) return;  // sim/graph.h
    const LaneRange lanes = compiled_.lanes_of(entry);
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const NodeId node = compiled_.on_lane(entry, lane);
      traces::Span span{.command = shown_as(entry),
                        .rank = rank_of(lane),
                        .stream = entry.stream,
                        .step = entry.step,
                        .start = instant(start(node)),
                        .end = instant(end(node)),
                        .transfer_start = {}};
      if (kind == NodeKind::Transfer) {
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
    std::int64_t time = entry.issued;
    for (const std::int32_t from : graph_.predecessors_of(node)) {
      if (graph_.takes_part(from, lane)) time = std::max(time, end(from));
    }
    return std::min(time, start(node));
  }

  // Collectives that are launched together are enqueued one after another behind one record: one
  // span.
  void join_enqueues() {
    std::set<CommandId> records;
    for (const CommandNode& entry : compiled_.command_nodes) {
      if (is_enqueue(entry)) records.insert(shown_as(entry));
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
    const auto latest = [&](EntryRange entries, std::int32_t lane) {
      std::int64_t time = 0;
      for (const std::int32_t entry : compiled_.entries(entries)) {
        time = std::max(time, end(compiled_.on_lane(entry, lane)));
      }
      return time;
    };
    // Idle communication streams always wait; only the compute stream's stalls are worth a span.
    if (wait.stream != schedule::kComputeStream) return;
    const LaneRange lanes = compiled_.roles[static_cast<std::size_t>(wait.role)];
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const std::int64_t from = latest(wait.stream_before, lane);
      const std::int64_t event = latest(wait.event, lane);
      const std::int64_t until = wait.wake_up ? end(compiled_.on_lane(*wait.wake_up, lane)) : event;
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
  const CompiledProgram& compiled_;
  const StepGraph& graph_;
  const Timeline& timeline_;
  traces::Trace trace_;
};

}  // namespace

traces::Trace simulate(const schedule::ScheduledProgram& program, const models::Costs& costs,
                       const SimOptions& options) {
  const CompiledProgram compiled = compile(program, costs, options.steps);
  Workspace workspace;
  play(compiled.graph, workspace);
  return trace_of(program, costs, compiled, workspace.timeline);
}

traces::Trace trace_of(const schedule::ScheduledProgram& program, const models::Costs& costs,
                       const CompiledProgram& compiled, const Timeline& timeline) {
  return TraceBuilder(program, costs, compiled, timeline).build();
}

Explained simulate_and_explain(const schedule::ScheduledProgram& program,
                               const models::Costs& costs, const SimOptions& options) {
  const CompiledProgram compiled = compile(program, costs, options.steps);
  Workspace workspace;
  play(compiled.graph, workspace);
  const Timeline& timeline = workspace.timeline;
  traces::Trace trace = trace_of(program, costs, compiled, timeline);
  const std::vector<traces::StepWindow> windows = traces::step_windows(trace);
  traces::CriticalPath path = critical_path(program, compiled, timeline, windows);
  return {std::move(trace), std::move(path)};
}

}  // namespace dovetail::sim
