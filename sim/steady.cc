// Playing on until a step repeats.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/steady.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace dovetail::sim {
namespace {

// Compares the last step with the one `cycle` steps before it, command by command: on the lane that
// ends last equal shifts, on others no larger ones.
class Repetition {
 public:
  Repetition(const Graph& graph, const Timeline& timeline, std::int64_t tolerance)
      : graph_(graph),
        timeline_(timeline),
        tolerance_(tolerance),
        entries_(graph.command_nodes.size() / static_cast<std::size_t>(graph.steps)) {
    DOVETAIL_CHECK(entries_ * static_cast<std::size_t>(graph.steps) == graph.command_nodes.size())
        << graph.command_nodes.size() << " commands in " << graph.steps << " steps";
    find_slowest();
  }

  [[nodiscard]] bool after(std::int32_t cycle) const {
    const std::size_t last = entries_ * static_cast<std::size_t>(graph_.steps - 1);
    const std::size_t back = entries_ * static_cast<std::size_t>(cycle);
    if (entries_ == 0) return true;
    const std::int64_t shift = end(slowest_entry_) - end(slowest_entry_ - back);
    for (std::size_t i = last; i < last + entries_; ++i) {
      const CommandNode& entry = graph_.command_nodes[i];
      const CommandNode& before = graph_.command_nodes[i - back];
      if (entry.issued - before.issued > shift) return false;
      const NodeId slowest = on_slowest(i);
      for (std::int32_t k = 0; k < entry.count; ++k) {
        const auto node = static_cast<std::size_t>(entry.first + k);
        const auto earlier = static_cast<std::size_t>(before.first + k);
        const std::int64_t start = timeline_.start[node] - timeline_.start[earlier];
        const std::int64_t end = timeline_.end[node] - timeline_.end[earlier];
        if (std::max(start, end) > shift + tolerance_) return false;
        if (entry.first + k == slowest && std::min(start, end) < shift - tolerance_) return false;
      }
    }
    return true;
  }

 private:
  void find_slowest() {
    std::int64_t latest = -1;
    for (std::size_t i = graph_.command_nodes.size() - entries_; i < graph_.command_nodes.size();
         ++i) {
      const LaneRange lanes = graph_.lanes_of(graph_.command_nodes[i]);
      for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
        const std::int64_t found = end_on(i, lane);
        if (found <= latest) continue;
        latest = found;
        slowest_ = lane;
        slowest_entry_ = i;
      }
    }
  }
  // The node of an entry on the slowest lane.
  [[nodiscard]] NodeId on_slowest(std::size_t entry) const {
    const LaneRange lanes = graph_.lanes_of(graph_.command_nodes[entry]);
    if (slowest_ < lanes.begin || slowest_ >= lanes.end) return kNoNode;
    return graph_.on_rank(static_cast<std::int32_t>(entry), slowest_);
  }
  [[nodiscard]] std::int64_t end_on(std::size_t entry, std::int32_t lane) const {
    const NodeId node = graph_.on_rank(static_cast<std::int32_t>(entry), lane);
    return timeline_.end[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] std::int64_t end(std::size_t entry) const { return end_on(entry, slowest_); }

  const Graph& graph_;
  const Timeline& timeline_;
  std::int64_t tolerance_;
  std::size_t entries_;  // of one step
  std::int32_t slowest_ = 0;
  std::size_t slowest_entry_ = 0;  // of the last step, which ends it
};

// The shortest cycle that the steps show; 0: none.
std::int32_t cycle_of(const Graph& graph, const Timeline& timeline, std::int64_t tolerance) {
  const Repetition repetition(graph, timeline, tolerance);
  for (std::int32_t cycle = 1; cycle <= graph.steps / 2; ++cycle) {
    if (repetition.after(cycle)) return cycle;
  }
  return 0;
}

std::int64_t rounded_mean(std::int64_t sum, std::int64_t count) {
  return (sum + count / 2) / count;  // of what is not negative
}

// The most by which a command of the last step ends after the same one `steps` steps before.
std::int64_t moved(const Graph& graph, const Timeline& timeline, std::int32_t steps) {
  const std::size_t entries = graph.command_nodes.size() / static_cast<std::size_t>(graph.steps);
  const std::size_t back = entries * static_cast<std::size_t>(steps);
  std::int64_t most = 0;
  for (std::size_t i = graph.command_nodes.size() - entries; i < graph.command_nodes.size(); ++i) {
    const CommandNode& entry = graph.command_nodes[i];
    const CommandNode& before = graph.command_nodes[i - back];
    for (std::int32_t k = 0; k < entry.count; ++k) {
      const auto node = static_cast<std::size_t>(entry.first + k);
      const auto earlier = static_cast<std::size_t>(before.first + k);
      most = std::max(most, timeline.end[node] - timeline.end[earlier]);
    }
  }
  return most;
}

// The average of the last steps; the step time is by how much the command moved that moved most.
StepSummary mean_of(const Graph& graph, const Timeline& timeline, std::int32_t steps) {
  StepSummary sum{.step_ns = moved(graph, timeline, steps)};
  for (std::int32_t step = graph.steps - steps; step < graph.steps; ++step) {
    const StepSummary one = summarize(graph, timeline, step);
    sum.exposed_ns += one.exposed_ns;
    sum.communication_ns += one.communication_ns;
    sum.compute_ns += one.compute_ns;
  }
  return {.step_ns = rounded_mean(sum.step_ns, steps),
          .exposed_ns = rounded_mean(sum.exposed_ns, steps),
          .communication_ns = rounded_mean(sum.communication_ns, steps),
          .compute_ns = rounded_mean(sum.compute_ns, steps)};
}

}  // namespace

SteadyState find_steady_state(const schedule::ScheduledProgram& program, const models::Costs& costs,
                              Graph& graph, Workspace& workspace) {
  constexpr std::int64_t kRounding = 4;          // ns, of rates
  constexpr std::int32_t kStepsForEquality = 8;  // from here on rounding is allowed for
  SteadyState state;
  for (state.steps = 2;; state.steps *= 2) {
    graph = compile(program, costs, state.steps, std::move(graph));
    play(graph, costs, workspace);
    state.cycle = cycle_of(graph, workspace.timeline, 0);
    if (state.cycle == 0 && state.steps >= kStepsForEquality) {
      state.cycle = cycle_of(graph, workspace.timeline, kRounding);
    }
    if (state.cycle > 0 || state.steps >= kMostSteps) break;
  }
  const std::int32_t shown = state.cycle > 0 ? state.cycle : state.steps / 2;
  state.summary = mean_of(graph, workspace.timeline, shown);
  return state;
}

std::int32_t steps_to_show(const SteadyState& state, std::int32_t at_least) {
  return std::max(at_least, state.steps == 2 ? 2 : 2 * state.steps);
}

}  // namespace dovetail::sim
