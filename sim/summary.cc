// Step time and exposed communication straight from a Timeline.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/simulate.h"
#include "traces/intervals.h"

namespace dovetail::sim {
namespace {

Instant instant(std::int64_t ns) { return Instant(Duration(ns)); }

}  // namespace

StepSummary summarize(const Graph& graph, const Timeline& timeline) {
  return summarize(graph, timeline, graph.steps - 1);
}

StepSummary summarize(const Graph& graph, const Timeline& timeline, std::int32_t step) {
  std::vector<std::int64_t> ends(static_cast<std::size_t>(graph.ranks), 0);
  std::int64_t before = 0;  // end of the step before
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(graph.command_nodes.size()); ++c) {
    const CommandNode& entry = graph.command_nodes[static_cast<std::size_t>(c)];
    const LaneRange lanes = graph.lanes_of(entry);
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const std::int64_t end = timeline.end[static_cast<std::size_t>(graph.on_rank(c, lane))];
      if (entry.step == step) {
        auto& latest = ends[static_cast<std::size_t>(lane)];
        latest = std::max(latest, end);
      } else if (entry.step == step - 1) {
        before = std::max(before, end);
      }
    }
  }
  const auto slowest = static_cast<std::int32_t>(std::ranges::max_element(ends) - ends.begin());
  std::vector<traces::Interval> compute;
  std::vector<traces::Interval> communication;
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(graph.command_nodes.size()); ++c) {
    const CommandNode& entry = graph.command_nodes[static_cast<std::size_t>(c)];
    if (entry.step != step || entry.kind == NodeKind::WakeUp || entry.kind == NodeKind::Call) {
      continue;
    }
    const LaneRange lanes = graph.lanes_of(entry);
    if (slowest < lanes.begin || slowest >= lanes.end) continue;
    const auto node = static_cast<std::size_t>(graph.on_rank(c, slowest));
    std::int64_t start = timeline.start[node];
    const bool transfer = entry.kind == NodeKind::Collective;
    if (!transfer && entry.stream != schedule::kComputeStream) continue;
    if (!transfer) start = std::min(start + graph.launch_gap, timeline.end[node]);
    (transfer ? communication : compute).push_back({instant(start), instant(timeline.end[node])});
  }
  compute = traces::union_of(std::move(compute));
  communication = traces::union_of(std::move(communication));
  StepSummary summary;
  summary.step_ns = ends[static_cast<std::size_t>(slowest)] - before;
  summary.communication_ns = traces::length(communication).count();
  summary.compute_ns = traces::length(compute).count();
  summary.exposed_ns = traces::uncovered(communication, compute).count();
  return summary;
}

}  // namespace dovetail::sim
