// Plays 2, 4, 8, ... steps and compares the last one with earlier ones, node by node: all steps have the same nodes in
// the same order.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/steady.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/interruption.h"

namespace dovetail::sim {
namespace {

NodeId nodes_of_step(const StepGraph& graph) {
  const NodeId nodes = graph.size() / graph.steps();
  DOVETAIL_CHECK(nodes * graph.steps() == graph.size())
      << graph.size() << " nodes in " << graph.steps() << " steps";
  return nodes;
}

// Compares the last step with the one `cycle` steps before it, node by node: on the lane that
// ends last equal shifts, on others no larger ones.
class Repetition {
 public:
  Repetition(const StepGraph& graph, const Timeline& timeline, std::int64_t tolerance)
      : graph_(graph), timeline_(timeline), tolerance_(tolerance), nodes_(nodes_of_step(graph)) {
    for (NodeId node = graph.size() - nodes_; node < graph.size(); ++node) {
      if (node > graph.size() - nodes_ && timeline.end_of(node) <= timeline.end_of(last_)) continue;
      last_ = node;
      slowest_ = graph.lanes_of(node).front();
    }
  }

  [[nodiscard]] bool after(std::int32_t cycle) const {
    const NodeId back = nodes_ * cycle;
    if (nodes_ == 0) return true;
    const std::int64_t shift = timeline_.end_of(last_) - timeline_.end_of(last_ - back);
    for (NodeId node = graph_.size() - nodes_; node < graph_.size(); ++node) {
      if (graph_.release_of(node) - graph_.release_of(node - back) > shift) return false;
      const std::int64_t start = timeline_.start_of(node) - timeline_.start_of(node - back);
      const std::int64_t end = timeline_.end_of(node) - timeline_.end_of(node - back);
      if (std::max(start, end) > shift + tolerance_) return false;
      if (std::min(start, end) >= shift - tolerance_) continue;
      if (graph_.takes_part(node, slowest_)) return false;
    }
    return true;
  }

 private:
  const StepGraph& graph_;
  const Timeline& timeline_;
  std::int64_t tolerance_;
  NodeId nodes_;              // of one step
  NodeId last_ = 0;           // of the last step: what ends it
  std::int32_t slowest_ = 0;  // its lane
};

// The shortest cycle that the steps show; 0: none.
std::int32_t cycle_of(const StepGraph& graph, const Timeline& timeline, std::int64_t tolerance) {
  const Repetition repetition(graph, timeline, tolerance);
  for (std::int32_t cycle = 1; cycle <= graph.steps() / 2; ++cycle) {
    throw_if_interrupted();
    if (repetition.after(cycle)) return cycle;
  }
  return 0;
}

std::int64_t rounded_mean(std::int64_t sum, std::int64_t count) {
  return (sum + count / 2) / count;  // of what is not negative
}

std::int64_t moved(const StepGraph& graph, const Timeline& timeline, NodeId node,
                   std::int32_t steps) {
  return timeline.end_of(node) - timeline.end_of(node - nodes_of_step(graph) * steps);
}

// A cycle: the most by which a node of the last step ends after the same one `steps` steps before.
std::int64_t shift_of_cycle(const StepGraph& graph, const Timeline& timeline, std::int32_t steps) {
  std::int64_t most = 0;
  for (NodeId node = graph.size() - nodes_of_step(graph); node < graph.size(); ++node) {
    most = std::max(most, moved(graph, timeline, node, steps));
  }
  return most;
}

// No cycle: the same, of what the next step waits for, or of when a host issues. Other nodes may slide in their slack:
// they move further for a while and hold up nobody.
std::int64_t shift_of_carried(const StepGraph& graph, const Timeline& timeline,
                              std::int32_t steps) {
  const NodeId nodes = nodes_of_step(graph);
  std::int64_t most = 0;
  for (NodeId node = graph.size() - nodes; node < graph.size(); ++node) {
    most = std::max(most, graph.release_of(node) - graph.release_of(node - nodes * steps));
    for (const NodeId from : graph.predecessors_of(node)) {
      // The last step waits for it in the step before: so does the next one in the last step.
      if (from < graph.size() - nodes)
        most = std::max(most, moved(graph, timeline, from + nodes, steps));
    }
  }
  return most;
}

// The average of the last steps, which take `shift` together.
StepSummary mean_of(const StepGraph& graph, const Timeline& timeline, std::int32_t steps,
                    std::int64_t shift) {
  StepSummary sum{.step_ns = shift};
  for (std::int32_t step = graph.steps() - steps; step < graph.steps(); ++step) {
    const StepSummary one = summarize(graph, timeline, step);
    sum.exposed_ns += one.exposed_ns;
    sum.communication_ns += one.communication_ns;
    sum.compute_ns += one.compute_ns;
    sum.host_wait_ns += one.host_wait_ns;
  }
  return {.step_ns = rounded_mean(sum.step_ns, steps),
          .exposed_ns = rounded_mean(sum.exposed_ns, steps),
          .communication_ns = rounded_mean(sum.communication_ns, steps),
          .compute_ns = rounded_mean(sum.compute_ns, steps),
          .host_wait_ns = rounded_mean(sum.host_wait_ns, steps)};
}

}  // namespace

SteadyState find_steady_state(const GraphOfSteps& graph_of, Workspace& workspace,
                              std::int32_t first) {
  constexpr std::int64_t kRounding = 4;          // ns, of rates
  constexpr std::int32_t kStepsForEquality = 8;  // from here on rounding is allowed for
  constexpr NodeId kMostNodes = 1 << 24;         // of all steps: some gigabytes
  SteadyState state;
  NodeId played = 0;
  for (state.steps = first;; state.steps *= 2) {
    const StepGraph& graph = graph_of(state.steps);
    play(graph, workspace, played);
    played = graph.size();
    state.cycle = cycle_of(graph, workspace.timeline, 0);
    if (state.cycle == 0 && state.steps >= kStepsForEquality) {
      state.cycle = cycle_of(graph, workspace.timeline, kRounding);
    }
    if (state.cycle == 0 && 2 * state.steps <= kMostSteps && graph.size() <= kMostNodes / 2)
      continue;
    const std::int32_t shown = state.cycle > 0 ? state.cycle : state.steps / 2;
    const std::int64_t shift = state.cycle > 0 ? shift_of_cycle(graph, workspace.timeline, shown)
                                               : shift_of_carried(graph, workspace.timeline, shown);
    state.summary = mean_of(graph, workspace.timeline, shown, shift);
    return state;
  }
}

SteadyState find_steady_state(const schedule::ScheduledProgram& program, const models::Costs& costs,
                              CompiledProgram& compiled, Workspace& workspace, std::int32_t first) {
  StepCompiler compiler(program, costs, std::move(compiled));
  const auto graph_of = [&](std::int32_t steps) -> const StepGraph& {
    return compiler.of(steps).graph;
  };
  const SteadyState state = find_steady_state(graph_of, workspace, first);
  compiled = std::move(compiler).take();
  return state;
}

std::int32_t steps_to_show(const SteadyState& state, std::int32_t at_least) {
  return std::max(at_least, state.steps == 2 ? 2 : 2 * state.steps);
}

}  // namespace dovetail::sim
