// Walks back from the end of each step, from every node to what let it start (sim/graph.h, started_by).
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/critical_path.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"

namespace dovetail::sim {
namespace {

using traces::LinkKind;
using traces::PathLink;

Instant link_instant(std::int64_t ns) { return Instant(Duration(ns)); }
std::int64_t ns(Instant at) { return at.time_since_epoch().count(); }

LinkKind kind_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::Compute:
      return LinkKind::Compute;
    case NodeKind::Copy:
      return LinkKind::Copy;
    case NodeKind::Transfer:
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
  Walk(const schedule::ScheduledProgram& program, const CompiledProgram& compiled,
       const Timeline& timeline)
      : program_(program), compiled_(compiled), graph_(compiled.graph), timeline_(timeline) {}

  std::vector<PathLink> of_step(std::int32_t step, const traces::StepWindow& window) const {
    const std::int64_t begin = ns(window.start);
    At at = last_of(step, window);
    std::vector<PathLink> links;
    std::int64_t until = end(at.node);
    while (until > begin) {
      const std::int64_t device = step::ready_at(graph_, timeline_, at.node);
      const std::int64_t host = graph_.release_of(at.node);
      const std::int64_t from = std::max({device, host, begin});
      if (from < until) links.push_back(link(at, from, until));
      until = from;
      if (host > device && host > begin) {
        PathLink issue = link(at, begin, host);
        issue.kind = LinkKind::Host;
        links.push_back(issue);
        break;
      }
      const std::optional<step::Edge> cause = step::started_by(graph_, timeline_, at.node);
      if (!cause) break;
      at = {cause->from, lane_of(cause->from, at.lane)};
    }
    std::ranges::reverse(links);
    return links;
  }

 private:
  // A node, and the lane on which the chain passes it.
  struct At {
    NodeId node = 0;
    std::int32_t lane = 0;
  };

  [[nodiscard]] std::int64_t end(NodeId node) const { return timeline_.end_of(node); }

  // Stays on the lane where the node is also of that one.
  [[nodiscard]] std::int32_t lane_of(NodeId node, std::int32_t lane) const {
    return graph_.takes_part(node, lane) ? lane : graph_.lanes_of(node).front();
  }

  // What ends the step on its slowest rank; of equals the last in issue order.
  [[nodiscard]] At last_of(std::int32_t step, const traces::StepWindow& window) const {
    std::optional<At> last;
    for (NodeId node = graph_.step_begin[static_cast<std::size_t>(step)];
         node < graph_.step_end(step); ++node) {
      if (end(node) != ns(window.end)) continue;
      for (const std::int32_t lane : graph_.lanes_of(node)) {
        if (compiled_.rank_of_lane[static_cast<std::size_t>(lane)] == window.slowest) {
          last = At{node, lane};
        }
      }
    }
    DOVETAIL_CHECK(last) << "nothing ends step " << step;
    return *last;
  }

  // Several roles may meet in a collective: the entry of the lane's own one.
  [[nodiscard]] const CommandNode& entry_of(const At& at) const {
    auto index = static_cast<std::size_t>(graph_.owner[static_cast<std::size_t>(at.node)]);
    const CommandNode& first = compiled_.command_nodes[index];
    for (; index < compiled_.command_nodes.size(); ++index) {
      const CommandNode& entry = compiled_.command_nodes[index];
      if (entry.first != first.first) break;
      if (compiled_.lanes_of(entry).contains(at.lane)) return entry;
    }
    return first;
  }

  [[nodiscard]] PathLink link(const At& at, std::int64_t from, std::int64_t until) const {
    const CommandNode& entry = entry_of(at);
    const schedule::Command& command = program_.roles[static_cast<std::size_t>(entry.role)]
                                           .commands[static_cast<std::size_t>(entry.command)];
    return {.kind = kind_of(compiled_.kind_of(entry)),
            .command = command.id,
            .rank = compiled_.rank_of_lane[static_cast<std::size_t>(at.lane)],
            .stream = entry.stream,
            .step = entry.step,
            .start = link_instant(from),
            .end = link_instant(until)};
  }

  const schedule::ScheduledProgram& program_;
  const CompiledProgram& compiled_;
  const StepGraph& graph_;
  const Timeline& timeline_;
};

}  // namespace

traces::CriticalPath critical_path(const schedule::ScheduledProgram& program,
                                   const CompiledProgram& compiled, const Timeline& timeline,
                                   std::span<const traces::StepWindow> windows) {
  const Walk walk(program, compiled, timeline);
  traces::CriticalPath path;
  for (std::size_t step = 0; step < windows.size(); ++step) {
    path.steps.push_back(walk.of_step(static_cast<std::int32_t>(step), windows[step]));
  }
  return path;
}

}  // namespace dovetail::sim
