// The two engines without contention.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/engine.h"

#include <algorithm>

namespace dovetail::sim {
namespace {

// The duration of a node that starts at `start`. Only a collective looks at what was before it.
inline std::int64_t duration_at(const Graph& graph, const Timeline& timeline, std::int64_t work,
                                std::int64_t start) {
  if (work >= 0) [[likely]]
    return work;
  const CollectiveNode& collective = graph.collectives[static_cast<std::size_t>(~work)];
  if (collective.previous == kNoNode) return collective.isolated;
  return collective.duration(start - timeline.end[static_cast<std::size_t>(collective.previous)]);
}

// Whether hosts limit anything is known per graph, so the common case has no look-up.
template <bool kReleases>
std::int64_t in_program_order(const Graph& graph, Timeline& timeline) {
  const std::int32_t* const begin = graph.predecessor_begin.data();
  const std::int32_t* const predecessors = graph.predecessors.data();
  std::int64_t last = 0;
  const auto nodes = static_cast<std::size_t>(graph.size());
  for (std::size_t node = 0; node < nodes; ++node) {
    std::int64_t start = kReleases ? graph.release[node] : 0;
    for (std::int32_t k = begin[node]; k < begin[node + 1]; ++k) {
      start = std::max(start, timeline.end[static_cast<std::size_t>(predecessors[k])]);
    }
    const std::int64_t end = start + duration_at(graph, timeline, graph.work[node], start);
    timeline.start[node] = start;
    timeline.end[node] = end;
    last = std::max(last, end);
  }
  return last;
}

template <bool kReleases>
std::int64_t events(const Graph& graph, Workspace& workspace) {
  Timeline& timeline = workspace.timeline;
  EventQueue& queue = workspace.queue;
  const auto begin_node = [&](std::size_t node, std::int64_t now) {
    const std::int64_t start = kReleases ? std::max(now, graph.release[node]) : now;
    const std::int64_t end = start + duration_at(graph, timeline, graph.work[node], start);
    timeline.start[node] = start;
    timeline.end[node] = end;
    return Event{end, static_cast<std::int32_t>(node)};
  };
  const auto nodes = static_cast<std::size_t>(graph.size());
  for (std::size_t node = 0; node < nodes; ++node) {
    if (graph.pending[node] == 0) queue.push(begin_node(node, 0));
  }
  std::int32_t* const pending = workspace.pending.data();
  const std::int32_t* const begin = graph.successor_begin.data();
  const std::int32_t* const successors = graph.successors.data();
  std::int64_t now = 0;
  while (!queue.empty()) {
    const Event event = queue.top();
    now = event.time;
    bool replaced = false;
    for (std::int32_t k = begin[event.key]; k < begin[event.key + 1]; ++k) {
      const auto next = static_cast<std::size_t>(successors[k]);
      if (--pending[next] != 0) continue;
      const Event started = begin_node(next, now);
      if (replaced) {
        queue.push(started);
      } else {
        queue.replace_top(started);
        replaced = true;
      }
    }
    if (!replaced) queue.pop();
  }
  return now;
}

void prepare(const Graph& graph, Workspace& workspace) {
  const auto nodes = static_cast<std::size_t>(graph.size());
  workspace.timeline.start.resize(nodes);
  workspace.timeline.end.resize(nodes);
}

}  // namespace

std::int64_t play_in_program_order(const Graph& graph, Workspace& workspace) {
  prepare(graph, workspace);
  return graph.release.empty() ? in_program_order<false>(graph, workspace.timeline)
                               : in_program_order<true>(graph, workspace.timeline);
}

std::int64_t play_events(const Graph& graph, Workspace& workspace) {
  prepare(graph, workspace);
  workspace.pending.assign(graph.pending.begin(), graph.pending.end());
  workspace.queue.clear();
  return graph.release.empty() ? events<false>(graph, workspace) : events<true>(graph, workspace);
}

}  // namespace dovetail::sim
