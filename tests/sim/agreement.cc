// Comparing engines node by node.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/agreement.h"

#include <gtest/gtest.h>

#include <vector>

#include "sim/engine.h"
#include "sim/reference.h"
#include "sim/simulate.h"

namespace dovetail::sim {

Timeline play_all(const Graph& graph) {
  Workspace order;
  Workspace events;
  Workspace contended;
  const std::int64_t end = play_in_program_order(graph, order);
  EXPECT_EQ(play_events(graph, events), end);
  const std::vector<models::Contention> none(static_cast<std::size_t>(graph.ranks));
  EXPECT_EQ(play_contended(graph, none, contended), end);
  EXPECT_EQ(order.timeline.start, events.timeline.start);
  EXPECT_EQ(order.timeline.end, events.timeline.end);
  EXPECT_EQ(order.timeline.start, contended.timeline.start);
  EXPECT_EQ(order.timeline.end, contended.timeline.end);
  return order.timeline;
}

void expect_reference(const schedule::ScheduledProgram& program, const models::Costs& costs,
                      std::int32_t steps) {
  const Graph graph = compile(program, costs, steps);
  Workspace workspace;
  play(graph, costs, workspace);
  const Timeline played =
      costs.contended() || graph.shares_links ? workspace.timeline : play_all(graph);
  const ReferenceTimeline reference = reference_simulate(program, costs, steps);
  std::size_t compared = 0;
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(graph.command_nodes.size()); ++c) {
    const CommandNode& entry = graph.command_nodes[static_cast<std::size_t>(c)];
    const auto& commands = program.roles[static_cast<std::size_t>(entry.role)].commands;
    const CommandId id = commands[static_cast<std::size_t>(entry.command)].id;
    const LaneRange lanes = graph.lanes_of(entry);
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      const auto node = static_cast<std::size_t>(graph.on_rank(c, lane));
      const Rank rank = graph.rank_of_lane[static_cast<std::size_t>(lane)];
      const bool enqueue = entry.kind == NodeKind::Enqueue || entry.kind == NodeKind::Call;
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
