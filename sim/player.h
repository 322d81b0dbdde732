// The player: when everything in a StepGraph begins and ends.
//
//   Workspace workspace;                       // reused, so that a search allocates nothing per candidate
//   std::int64_t end = play(graph, workspace); // workspace.timeline
//
// One answer, found in two ways. Where nothing slows anything down a node begins at the latest end of what it waits
// for, so one pass in node order will do (node order is topological); it takes 2 to 3 ns per node. Where lanes have
// contention or transfers share links, what is in flight together has rates (rates.h), and an event loop follows them.
// Wherever both apply they agree to the nanosecond (tests/sim/engines_test.cc).
//
// A changed graph need not be played from the start: without rates nodes before the first changed one keep their
// times, exactly. With rates a later node may slow an earlier one down, so everything is played again.
//
// With rates progress is kept in units of 2^-20 ns: exact to 1 ns per change of rate, and deterministic. A lane's op
// progresses at 1 / compute_slowdown while a transfer in which the lane takes part is in flight, and besides loses the
// transfer's processor time; a transfer at 1 / collective_slowdown while any of its lanes computes, at the slowest of what these
// do to it. One that begins beside a product waits for its thread blocks and does not move before it has them (start delay,
// models/costs/costs.h); a product that begins in the same instant counts.
//
// Throws InputError where a node lasts 73 minutes or more (2^42 ns) and rates are needed.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/absences.h"
#include "sim/event_queue.h"
#include "sim/graph.h"

namespace dovetail::sim {

using step::NodeId;
using step::Timeline;

struct Workspace {
  Timeline timeline;
  std::vector<std::int32_t> pending;
  EventQueue queue;
  std::int64_t events = 0;  // that the event loop handled
};

// Fills workspace.timeline and returns the latest end of the nodes from `from` on, in ns. REQUIRES: where rates are
// needed the graph is linked and no lag is below 0; where `from` is not 0, workspace.timeline is of the same nodes
// before it.
std::int64_t play(const step::StepGraph& graph, Workspace& workspace, NodeId from = 0);

// Whether play() follows rates.
[[nodiscard]] bool needs_rates(const step::StepGraph& graph);

// The two ways. In order: as if nothing slowed anything down. With rates: on any graph.
std::int64_t play_in_order(const step::StepGraph& graph, Workspace& workspace, NodeId from = 0);
std::int64_t play_with_rates(const step::StepGraph& graph, Workspace& workspace);

// With rates, and lanes whose cores are away at times (absences.h).
std::int64_t play_with_absences(const step::StepGraph& graph, const Absences& absences,
                                Workspace& workspace);

}  // namespace dovetail::sim
