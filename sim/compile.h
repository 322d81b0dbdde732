// From commands and costs to a StepGraph: a ScheduledProgram with its Costs, compiled to what the player plays.
//
// Ranks that are alike are folded: a role of many ranks with equal costs has one lane (lanes.h). Ops, copies,
// enqueues and wake-ups become a node on each lane of their role; a collective becomes a transfer that the lanes of
// one instance of its group share. Events and waits become edges. Nodes are numbered in an order in which everything
// can be issued (issue_order.h; with one role: host issue order), step after step, with the lanes of one command side
// by side: they advance together, so their state lies together (this beat every change of the event queue).
//
// The owner of a node is its command node: one command of one step on all lanes of its role.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/graph.h"
#include "sim/lanes.h"

namespace dovetail::sim {

using step::NodeId;
using step::NodeKind;
using step::StepGraph;
using step::Timeline;

// One command of one step on the lanes of its role; its nodes are first .. first + count - 1: one per
// lane, one for all, or one per instance of the process group. A collective in which several roles
// meet has an entry for each of them, with the same nodes, one after another.
struct CommandNode {
  std::int32_t command = 0;  // index in the role's command list
  std::int32_t step = 0;
  NodeId first = 0;
  std::int32_t count = 1;
  StreamId stream;
  std::int32_t role = 0;
  std::optional<std::int32_t> instances = {};  // index into CompiledProgram::instances
  std::int64_t issued = 0;                     // when this role's host lets it start
};

// Part of CompiledProgram::wait_entries.
struct EntryRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

// A WaitEvent of one step: how to find out whether a stream stood there.
struct WaitRecord {
  std::int32_t command = 0;
  std::int32_t step = 0;
  std::int32_t role = 0;
  StreamId stream;
  EntryRange stream_before = {};             // what the stream had done
  EntryRange event = {};                     // what the event stands for
  std::optional<std::int32_t> wake_up = {};  // command node of the wake-up after it
};

struct CompiledProgram {
  StepGraph graph;
  std::vector<Rank> rank_of_lane;  // rising within a role
  std::vector<LaneRange> roles;
  std::vector<CommandNode> command_nodes;
  std::vector<WaitRecord> waits;
  std::vector<std::int32_t> wait_entries;            // indices of command nodes, for these
  std::vector<std::vector<std::int32_t>> instances;  // per lane of all roles: which of the nodes

  // Forgets everything but keeps the memory.
  void clear();
  [[nodiscard]] std::span<const std::int32_t> entries(EntryRange range) const {
    return std::span(wait_entries)
        .subspan(static_cast<std::size_t>(range.begin),
                 static_cast<std::size_t>(range.end - range.begin));
  }
  [[nodiscard]] const CommandNode& entry_of(NodeId node) const {
    return command_nodes[static_cast<std::size_t>(graph.owner[static_cast<std::size_t>(node)])];
  }
  [[nodiscard]] NodeKind kind_of(const CommandNode& entry) const {
    return graph.kind[static_cast<std::size_t>(entry.first)];
  }
  [[nodiscard]] LaneRange lanes_of(const CommandNode& entry) const {
    return roles[static_cast<std::size_t>(entry.role)];
  }
  // The node of a command node on one lane. REQUIRES: the lane is of the entry's role.
  [[nodiscard]] NodeId on_lane(const CommandNode& entry, std::int32_t lane) const {
    if (entry.count == 1) return entry.first;
    if (!entry.instances) return entry.first + lane - lanes_of(entry).begin;
    return entry.first +
           instances[static_cast<std::size_t>(*entry.instances)][static_cast<std::size_t>(lane)];
  }
  [[nodiscard]] NodeId on_lane(std::int32_t entry, std::int32_t lane) const {
    return on_lane(command_nodes[static_cast<std::size_t>(entry)], lane);
  }
};

class Compiler;

// A program compiled for more and more steps: those that are there stay, and once a step leaves its streams as the one before it
// did, each further one is a copy of it. Keeps references to both. Throws as compile does.
class StepCompiler {
 public:
  StepCompiler(const schedule::ScheduledProgram& program, const models::Costs& costs,
               CompiledProgram memory = {});
  StepCompiler(StepCompiler&&) = delete;
  ~StepCompiler();
  // REQUIRES: no fewer than before.
  const CompiledProgram& of(std::int32_t steps);
  CompiledProgram take() &&;

 private:
  std::unique_ptr<Compiler> compiler_;
};

// REQUIRES: verify(program) is empty, steps >= 1. `memory` is an old CompiledProgram whose memory is
// used again: a search that gives back each one allocates next to nothing per candidate. Throws InputError where
// everything in a row would take longer than can be simulated (36 years).
CompiledProgram compile(const schedule::ScheduledProgram& program, const models::Costs& costs,
                        std::int32_t steps, CompiledProgram memory = {});

// What the ops of one step take on each lane where nothing runs beside them: no step of the same ops is faster than the longest.
// `updates`: also those of the optimizer, which buckets divide over ranks where they are sharded. REQUIRES: compiled from this program.
std::vector<std::int64_t> compute_of_lanes(const schedule::ScheduledProgram& program,
                                           const CompiledProgram& compiled, bool updates);

}  // namespace dovetail::sim
