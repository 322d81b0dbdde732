// The engines that play a Graph. All give the same Timeline wherever more than one applies.
//
//   play_in_program_order  one pass, no queue: exact, because streams are in order and node order
//                          is topological; the fast path
//   play_events            event loop on a 4-ary heap; the general machine without contention
//   play_contended         event loop with rates: compute and collectives in flight together slow
//                          each other down
//
// Workspaces are reused between calls, so a search allocates nothing per candidate.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/costs.h"
#include "sim/event_queue.h"
#include "sim/graph.h"

namespace dovetail::sim {

struct Workspace {
  Timeline timeline;
  std::vector<std::int32_t> pending;
  EventQueue queue;
  std::int64_t events = 0;  // that play_contended and play_disturbed handled
};

// Each fills workspace.timeline and returns the end of the last node, in ns.
std::int64_t play_in_program_order(const Graph& graph, Workspace& workspace);
std::int64_t play_events(const Graph& graph, Workspace& workspace);

// One Contention per lane. Progress is kept in units of 2^-20 ns, so a run is exact to 1 ns per
// change of rate and deterministic. What a lane computes progresses at 1 / compute_slowdown while a
// collective in which it takes part transfers, and besides loses the collective's processor time; a
// collective at 1 / collective_slowdown while the compute stream of any of its lanes is busy.
std::int64_t play_contended(const Graph& graph, std::span<const models::Contention> contention,
                            Workspace& workspace);

// When the cores of lanes are away, in ns from the start of the first step. Meanwhile the lane computes
// nothing, and none of its collectives begins or ends. One in flight goes on for `shield_ns`, as far as
// what was already handed to the network lasts, and then stands still too.
struct Absence {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
struct Absences {
  std::vector<std::vector<Absence>> by_lane;  // each by time and apart; empty: nobody is ever away
  std::int64_t shield_ns = 0;
};

// The same with absences. What runs on other streams without being a transfer is not held up.
std::int64_t play_disturbed(const Graph& graph, std::span<const models::Contention> contention,
                            const Absences& absences, Workspace& workspace);

}  // namespace dovetail::sim
