// Walking back from the end of each step.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/critical_path.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace dovetail::sim {
namespace {

using traces::LinkKind;
using traces::PathLink;

Instant instant(std::int64_t ns) { return Instant(Duration(ns)); }
std::int64_t ns(Instant at) { return at.time_since_epoch().count(); }

LinkKind kind_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::Compute:
      return LinkKind::Compute;
    case NodeKind::Copy:
      return LinkKind::Copy;
    case NodeKind::Collective:
      return LinkKind::Transfer;
    case NodeKind::Enqueue:
    case NodeKind::Call:
      return LinkKind::Launch;
    case NodeKind::WakeUp:
      return LinkKind::WakeUp;
  }
  return LinkKind::Compute;
}

class Walk {
 public:
  Walk(const schedule::ScheduledProgram& program, const Graph& graph, const Timeline& timeline)
      : program_(program), graph_(graph), timeline_(timeline) {}

  std::vector<PathLink> of_step(std::int32_t step, const traces::StepWindow& window) const {
    const std::int64_t begin = ns(window.start);
    At at = last_of(step, window);
    std::vector<PathLink> links;
    std::int64_t until = end(at.node);
    while (until > begin) {
      const NodeId before = latest_predecessor(at.node);
      const std::int64_t device = before == kNoNode ? 0 : end(before);
      const std::int64_t host = released(at.node);
      const std::int64_t from = std::max({device, host, begin});
      if (from < until) links.push_back(link(at, from, until));
      until = from;
      if (host > device && host > begin) {
        PathLink issue = link(at, begin, host);
        issue.kind = LinkKind::Host;
        links.push_back(issue);
        break;
      }
      if (before == kNoNode) break;
      at = {before, lane_of(before, at.lane)};
    }
    std::ranges::reverse(links);
    return links;
  }

 private:
  // A node, and the lane on which the chain passes it.
  struct At {
    NodeId node = kNoNode;
    std::int32_t lane = 0;
  };

  [[nodiscard]] std::int64_t end(NodeId node) const {
    return timeline_.end[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] std::int64_t released(NodeId node) const {
    return graph_.release.empty() ? 0 : graph_.release[static_cast<std::size_t>(node)];
  }

  [[nodiscard]] NodeId latest_predecessor(NodeId node) const {
    NodeId latest = kNoNode;
    for (const NodeId each : graph_.predecessors_of(node)) {
      const bool is_later = latest == kNoNode || end(each) > end(latest) ||
                            (end(each) == end(latest) && each < latest);
      if (is_later) latest = each;
    }
    return latest;
  }

  // Stays on the lane where the node is also of that one.
  [[nodiscard]] std::int32_t lane_of(NodeId node, std::int32_t lane) const {
    if (graph_.takes_part(node, lane)) return lane;
    const auto n = static_cast<std::size_t>(node);
    if (graph_.work[n] < 0) {
      const CollectiveNode& table = graph_.collectives[static_cast<std::size_t>(~graph_.work[n])];
      return graph_.lane_sets[static_cast<std::size_t>(table.lanes)].front();
    }
    const CommandNode& entry =
        graph_.command_nodes[static_cast<std::size_t>(graph_.command_node[n])];
    return graph_.lanes_of(entry).begin + node - entry.first;
  }

  // What ends the step on its slowest rank; of equals the last in issue order.
  [[nodiscard]] At last_of(std::int32_t step, const traces::StepWindow& window) const {
    At last;
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(graph_.command_nodes.size()); ++c) {
      const CommandNode& entry = graph_.command_nodes[static_cast<std::size_t>(c)];
      if (entry.step != step) continue;
      const LaneRange lanes = graph_.lanes_of(entry);
      for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
        if (graph_.rank_of_lane[static_cast<std::size_t>(lane)] != window.slowest) continue;
        const NodeId node = graph_.on_rank(c, lane);
        if (end(node) == ns(window.end)) last = {node, lane};
      }
    }
    DOVETAIL_CHECK(last.node != kNoNode) << "nothing ends step " << step;
    return last;
  }

  // Several roles may meet in a collective: the entry of the lane's own one.
  [[nodiscard]] const CommandNode& entry_of(const At& at) const {
    const auto n = static_cast<std::size_t>(at.node);
    auto index = static_cast<std::size_t>(graph_.command_node[n]);
    const CommandNode& first = graph_.command_nodes[index];
    for (; index < graph_.command_nodes.size(); ++index) {
      const CommandNode& entry = graph_.command_nodes[index];
      if (entry.first != first.first) break;
      const LaneRange lanes = graph_.lanes_of(entry);
      if (at.lane >= lanes.begin && at.lane < lanes.end) return entry;
    }
    return first;
  }

  [[nodiscard]] PathLink link(const At& at, std::int64_t from, std::int64_t until) const {
    const CommandNode& entry = entry_of(at);
    const schedule::Command& command = program_.roles[static_cast<std::size_t>(entry.role)]
                                           .commands[static_cast<std::size_t>(entry.command)];
    return {.kind = kind_of(entry.kind),
            .command = command.id,
            .rank = graph_.rank_of_lane[static_cast<std::size_t>(at.lane)],
            .stream = entry.stream,
            .step = entry.step,
            .start = instant(from),
            .end = instant(until)};
  }

  const schedule::ScheduledProgram& program_;
  const Graph& graph_;
  const Timeline& timeline_;
};

}  // namespace

traces::CriticalPath critical_path(const schedule::ScheduledProgram& program, const Graph& graph,
                                   const Timeline& timeline,
                                   std::span<const traces::StepWindow> windows) {
  const Walk walk(program, graph, timeline);
  traces::CriticalPath path;
  for (std::size_t step = 0; step < windows.size(); ++step) {
    path.steps.push_back(walk.of_step(static_cast<std::int32_t>(step), windows[step]));
  }
  return path;
}

}  // namespace dovetail::sim
