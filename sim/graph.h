// A Graph: one ScheduledProgram with its Costs, compiled to flat arrays that the engines can play
// fast.
//
// A lane is one simulated rank. Ranks that are alike are folded: a role of many ranks with equal
// costs has one lane (lanes.h). A node is one thing that takes time: an op, a copy, the enqueue of a
// collective or a wake-up on one lane, or a collective, which the lanes of one instance of its group
// share. Events and waits are edges. Nodes are numbered in an order in which everything can be
// issued (issue_order.h; with one role: host issue order), step after step, with the lanes of one
// command side by side: they advance together, so their state lies together (this beat every change
// of the event queue). Every edge goes from a lower to a higher number, so node order is one
// topological order.
//
//   memory      33 bytes per node and 8 per edge
//   time        a node starts at max(end of predecessors, release), takes `work`, and ends
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "models/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/rates.h"

namespace dovetail::sim {

using NodeId = std::int32_t;
inline constexpr NodeId kNoNode = -1;

// Enqueue: under the record that opens a launch. Call: the same without a record (a receive needs
// none); like WakeUp it takes time that no span of its own shows.
enum class NodeKind : std::uint8_t { Compute, Copy, Collective, Enqueue, Call, WakeUp };

// One command of one step on the lanes of its role; its nodes are first .. first + count - 1: one per
// lane, one for all, or one per instance of the process group. A collective in which several roles
// meet has an entry for each of them, with the same nodes, one after another.
struct CommandNode {
  std::int32_t command = 0;  // index in the role's command list
  std::int32_t step = 0;
  NodeId first = 0;
  std::int32_t count = 1;
  NodeKind kind = NodeKind::Compute;
  StreamId stream;
  std::int32_t role = 0;
  std::int32_t instances = -1;  // index into Graph::instances; -1: by lane, or one for all
  std::int64_t issued = 0;      // when this role's host lets it start
};

// A WaitEvent of one step: how to find out whether a stream stood there. Lists hold indices of
// CommandNodes.
struct WaitRecord {
  std::int32_t command = 0;
  std::int32_t step = 0;
  std::int32_t role = 0;
  StreamId stream;
  std::vector<std::int32_t> stream_before;  // what the stream had done
  std::vector<std::int32_t> event;          // what the event stands for
  std::int32_t wake_up = -1;                // command node of the wake-up after it, or -1
};

// A collective's duration depends on the pause before it on its stream (models/costs.h).
struct CollectiveNode {
  NodeId node = kNoNode;
  NodeId previous = kNoNode;  // the collective before it on the same stream of its first lane
  std::int64_t isolated = 0;
  std::int64_t back_to_back = 0;
  std::int32_t lanes = 0;         // who takes part: index into Graph::lane_sets
  std::int64_t latency = 0;       // of its duration: what loads no link
  std::int32_t first_demand = 0;  // of Graph::demands, while it transfers at full rate
  std::int32_t demands = 0;

  // Nanoseconds for a start `gap` ns after the end of the previous collective.
  [[nodiscard]] std::int64_t duration(std::int64_t gap) const {
    if (isolated < back_to_back) return std::max(isolated, back_to_back - gap);
    return std::min(isolated, back_to_back + gap);
  }
};

// The lanes of one role.
struct LaneRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  friend bool operator==(const LaneRange&, const LaneRange&) = default;
};

struct Graph {
  std::int32_t ranks = 1;  // lanes: simulated ranks of all roles
  std::int32_t steps = 1;
  std::int32_t channels = 1;       // `slot` counts transfers as ~0 .. ~(channels - 1)
  std::vector<Rank> rank_of_lane;  // rising within a role
  std::vector<LaneRange> roles;

  // Per node. Work >= 0 is a duration in ns; ~work is an index into `collectives` otherwise.
  std::vector<std::int64_t> work;
  std::vector<std::int64_t> release;  // earliest start; empty when the host never limits
  std::vector<std::int32_t> pending;  // number of predecessors
  std::vector<std::int32_t> successor_begin, successors;      // CSR
  std::vector<std::int32_t> predecessor_begin, predecessors;  // CSR
  std::vector<std::int32_t> command_node;                     // of each node
  // What a node occupies while it runs: the compute of its lane (0 .. ranks - 1), another stream of
  // its lane without being a transfer (from `ranks` on), or the channel of a transfer, as ~channel.
  std::vector<std::int32_t> slot;

  std::vector<models::KernelClass> kernel;  // of each node; of collectives: Other

  std::vector<CollectiveNode> collectives;
  std::vector<Demand> demands;  // on links: what each collective wants of them (rates.h)
  std::int32_t resources = 0;   // links of all lanes, out and in
  bool shares_links = false;    // whether two transfers in flight may load the same one
  std::vector<CommandNode> command_nodes;
  std::vector<WaitRecord> waits;
  std::vector<std::vector<std::int32_t>> lane_sets;  // sorted
  std::vector<std::vector<std::int32_t>> instances;  // per lane of all roles: which of the nodes
  std::int64_t launch_gap = 0;  // included in `work` of all but collectives' tables

  // Forgets everything but keeps the memory.
  void clear();
  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(work.size()); }
  [[nodiscard]] std::span<const std::int32_t> predecessors_of(NodeId node) const {
    const auto n = static_cast<std::size_t>(node);
    const auto begin = static_cast<std::size_t>(predecessor_begin[n]);
    return std::span(predecessors)
        .subspan(begin, static_cast<std::size_t>(predecessor_begin[n + 1]) - begin);
  }
  // The node of a command node on one lane. REQUIRES: the lane is of the entry's role.
  [[nodiscard]] NodeId on_rank(std::int32_t command_node_index, std::int32_t lane) const {
    const CommandNode& entry = command_nodes[static_cast<std::size_t>(command_node_index)];
    if (entry.count == 1) return entry.first;
    if (entry.instances < 0) {
      return entry.first + lane - roles[static_cast<std::size_t>(entry.role)].begin;
    }
    return entry.first +
           instances[static_cast<std::size_t>(entry.instances)][static_cast<std::size_t>(lane)];
  }
  // Whether a node is of this lane: its own, or a collective in which it takes part.
  [[nodiscard]] bool takes_part(NodeId node, std::int32_t lane) const {
    const auto n = static_cast<std::size_t>(node);
    if (work[n] < 0) {
      const CollectiveNode& table = collectives[static_cast<std::size_t>(~work[n])];
      return std::ranges::binary_search(lane_sets[static_cast<std::size_t>(table.lanes)], lane);
    }
    const CommandNode& entry = command_nodes[static_cast<std::size_t>(command_node[n])];
    return roles[static_cast<std::size_t>(entry.role)].begin + node - entry.first == lane;
  }
  [[nodiscard]] LaneRange lanes_of(const CommandNode& entry) const {
    return roles[static_cast<std::size_t>(entry.role)];
  }
};

// When each node began and ended, in ns from the start of step 0.
struct Timeline {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> end;
};

// REQUIRES: verify(program) is empty, steps >= 1. `memory` is an old Graph whose memory is
// used again: a search that gives back each Graph allocates next to nothing per candidate.
Graph compile(const schedule::ScheduledProgram& program, const models::Costs& costs,
              std::int32_t steps, Graph memory = {});

}  // namespace dovetail::sim
