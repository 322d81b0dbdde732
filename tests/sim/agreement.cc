// Compares timelines node by node, and command by command with the reference simulator.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/agreement.h"

#include <gtest/gtest.h>

#include <vector>

#include "sim/player.h"
#include "tests/support/reference_simulator.h"

namespace dovetail::sim {

Timeline play_both(const StepGraph& graph) {
  Workspace order;
  Workspace rates;
  EXPECT_EQ(play_in_order(graph, order), play_with_rates(graph, rates));
  EXPECT_EQ(order.timeline.start, rates.timeline.start);
  EXPECT_EQ(order.timeline.end, rates.timeline.end);
  return order.timeline;
}

void expect_reference(const schedule::ScheduledProgram& program, const models::Costs& costs,
                      std::int32_t steps) {
  const CompiledProgram compiled = compile(program, costs, steps);
  Workspace workspace;
  play(compiled.graph, workspace);
  const Timeline played =
      needs_rates(compiled.graph) ? workspace.timeline : play_both(compiled.graph);
  const testing::ReferenceTimeline reference = testing::reference_simulate(program, costs, steps);
  std::size_t compared = 0;
  for (const CommandNode& entry : compiled.command_nodes) {
    const auto& commands = program.roles[static_cast<std::size_t>(entry.role)].commands;
    const CommandId id = commands[static_cast<std::size_t>(entry.command)].id;
    const NodeKind kind = compiled.kind_of(entry);
    const LaneRange lanes = compiled.lanes_of(entry);
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const auto node = static_cast<std::size_t>(compiled.on_lane(entry, lane));
      const Rank rank = compiled.rank_of_lane[static_cast<std::size_t>(lane)];
      const bool enqueue = kind == NodeKind::Enqueue || kind == NodeKind::Call;
      const auto found = reference.find({entry.step, rank, id, enqueue});
      ASSERT_NE(found, reference.end());
      ASSERT_EQ(played.start[node], found->second.start) << "command " << id << " rank " << rank;
      ASSERT_EQ(played.end[node], found->second.end) << "command " << id << " rank " << rank;
      ++compared;
    }
  }
  EXPECT_EQ(compared, reference.size());
}

}  // namespace dovetail::sim
