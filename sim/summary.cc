// What one step of a played graph comes to: when its slowest lane ends, and what its streams did meanwhile.
//
// Everything is read from nodes: their step from their place in the order, their lanes from their slot or, of a
// transfer, from who takes part.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/simulate.h"
#include "traces/intervals.h"

namespace dovetail::sim {
namespace {

Instant summary_instant(std::int64_t ns) { return Instant(Duration(ns)); }

// When the last node of a step ended; 0 of no step.
std::int64_t end_of_step(const StepGraph& graph, const Timeline& timeline, std::int32_t step) {
  if (step < 0) return 0;
  const NodeId begin = graph.step_begin[static_cast<std::size_t>(step)];
  const NodeId end = graph.step_end(step);
  return begin == end ? 0
                      : *std::max_element(timeline.end.begin() + begin, timeline.end.begin() + end);
}

// Of equals the first lane.
std::int32_t slowest_lane(const StepGraph& graph, const Timeline& timeline, std::int32_t step) {
  if (graph.lanes == 1) return 0;
  std::vector<std::int64_t> ends(static_cast<std::size_t>(graph.lanes), 0);
  for (NodeId node = graph.step_begin[static_cast<std::size_t>(step)]; node < graph.step_end(step);
       ++node) {
    for (const std::int32_t lane : graph.lanes_of(node)) {
      std::int64_t& latest = ends[static_cast<std::size_t>(lane)];
      latest = std::max(latest, timeline.end_of(node));
    }
  }
  return static_cast<std::int32_t>(std::ranges::max_element(ends) - ends.begin());
}

}  // namespace

StepSummary summarize(const StepGraph& graph, const Timeline& timeline) {
  return summarize(graph, timeline, graph.steps() - 1);
}

StepSummary summarize(const StepGraph& graph, const Timeline& timeline, std::int32_t step) {
  StepSummary summary;
  summary.step_ns = end_of_step(graph, timeline, step) - end_of_step(graph, timeline, step - 1);
  const std::int32_t slowest = slowest_lane(graph, timeline, step);
  std::vector<traces::Interval> compute;
  std::vector<traces::Interval> communication;
  compute.reserve(static_cast<std::size_t>(graph.step_end(step) -
                                           graph.step_begin[static_cast<std::size_t>(step)]));
  for (NodeId node = graph.step_begin[static_cast<std::size_t>(step)]; node < graph.step_end(step);
       ++node) {
    const bool transfer = graph.is_transfer(node);
    const step::Slot& slot = graph.slot_of(node);
    const bool on_compute = slot.stream == schedule::kComputeStream;
    if (!transfer && (!on_compute || slot.lane != slowest)) continue;
    if (transfer && !graph.takes_part(node, slowest)) continue;
    std::int64_t start = timeline.start_of(node);
    const std::int64_t end = timeline.end_of(node);
    if (on_compute && start == graph.release_of(node)) {
      summary.host_wait_ns += start - ready_at(graph, timeline, node);
    }
    const NodeKind kind = graph.kind[static_cast<std::size_t>(node)];
    if (kind == NodeKind::WakeUp || kind == NodeKind::Call) continue;
    if (!transfer) start = std::min(start + graph.launch_gap, end);
    (transfer ? communication : compute).push_back({summary_instant(start), summary_instant(end)});
  }
  compute = traces::union_of(std::move(compute));
  communication = traces::union_of(std::move(communication));
  summary.communication_ns = traces::length(communication).count();
  summary.compute_ns = traces::length(compute).count();
  summary.exposed_ns = traces::uncovered(communication, compute).count();
  return summary;
}

}  // namespace dovetail::sim
