// A StepGraph: training steps as a timed graph. What the simulator plays, a search edits and a diagnosis explains.
//
// A node is one thing that takes time: an op, a copy, a transfer, a call of the host. It occupies a slot while it
// runs: the compute stream of a lane, another stream, the host. A lane is one simulated rank. Edges say what a node
// waits for, how long after that it may start (the lag), and why. Played without anything in the way, node n runs
//
//   start = max(release of n, end of p + lag of the edge, over all edges p -> n)         end = start + work of n
//
//   lane 0 compute  F0 B0 ........ O0     F0 -> B0 -> O0 by Order; B0 -> A0 by Event; A0 -> O0 by Event
//   lane 0 comm0          A0A0A0A0
//
// Who builds it says what an owner is: sim/compile.h a command, diagnosis a recorded kernel or call. The graph knows
// no schedule and no file. Invariants, kept by append(): every edge goes from a lower to a higher number, so node
// order is one topological order; the nodes of one step stand together, step after step.
//
// A host that never waits for the device needs no nodes: when it has issued a command is the release of the command's
// node. A host that does wait is a slot like any other:
//
//   host    call c (its time)  -> by Order with the pause as lag ->  the next call
//   device  kernel k           <- by Launch with the launch latency as lag <- c;   <- by Order with the gap <- the one before it
//   host    return r (no time) <- by Order <- the blocking call;    <- by Synchronise with its lag <- k
//
// Cost: flat arrays, 29 bytes per node (37 with releases) and 9 per edge (17 with lags), linked.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "models/costs/costs.h"

namespace dovetail::step {

using NodeId = std::int32_t;  // position among the nodes
using SlotId = std::int32_t;  // position among the slots

// Enqueue: host work to hand a transfer over, under the record that opens its launch. Call: other host work that no
// span of a trace shows. WakeUp: of a stream that waited for an event; nor does it have a span.
enum class NodeKind : std::uint8_t { Compute, Copy, Transfer, Enqueue, Call, WakeUp };

// Compute: what the ops of a lane run on. Stream: another stream, with what is no transfer. Transfers: what of a
// stream is transfers. Host: a host that waits for the device.
enum class SlotKind : std::uint8_t { Compute, Stream, Transfers, Host };
struct Slot {
  SlotKind kind = SlotKind::Compute;
  std::int32_t lane = 0;  // of transfers: the first one that takes part
  StreamId stream;
  friend bool operator==(const Slot&, const Slot&) = default;
};

// Order: the node before it on its slot. Event: what an event stands for that its stream waits for. Launch: the
// host's work to issue it. Synchronise: device work that a host waits for.
enum class EdgeKind : std::uint8_t { Order, Event, Launch, Synchronise };
struct Edge {
  NodeId from = 0;
  EdgeKind kind = EdgeKind::Order;
  std::int64_t lag = 0;  // ns; below 0 only where nothing shares or slows down (sim/player.h)
  friend bool operator==(const Edge&, const Edge&) = default;
};

// How long a node takes: a fixed time, or that of a transfer, which depends on the pause before it.
class Work {
 public:
  constexpr Work() = default;
  static constexpr Work fixed(std::int64_t ns) { return Work(ns); }  // REQUIRES: ns >= 0
  static constexpr Work transfer(std::size_t index) {
    return Work(~static_cast<std::int64_t>(index));
  }
  [[nodiscard]] constexpr bool is_transfer() const { return bits_ < 0; }
  [[nodiscard]] constexpr std::int64_t ns() const { return bits_; }  // REQUIRES: it is no transfer
  // Index into StepGraph::transfers. REQUIRES: it is a transfer.
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(~bits_); }
  friend constexpr bool operator==(Work, Work) = default;

 private:
  constexpr explicit Work(std::int64_t bits) : bits_(bits) {}
  std::int64_t bits_ = 0;
};

// What a transfer uses of one resource (a link of a lane, out or in) while it moves at its full rate.
struct Demand {
  std::int32_t resource = 0;
  double amount = 0;  // 0..1
  friend bool operator==(const Demand&, const Demand&) = default;
};

// What a transfer takes of the GPU of each lane, beside constant slow-downs (models/costs/multiprocessors.h).
struct GpuShare {
  double multiprocessors = 0;  // 0..1, as long as it is in flight
  // Of the rate that streaming ops reach, while it moves at its full rate; may be above 1.
  double memory = 0;
  friend bool operator==(const GpuShare&, const GpuShare&) = default;
};

// A point on the curve of a collective, with both its times (models/costs/costs.h).
struct Transfer {
  NodeId node = 0;
  std::optional<NodeId> previous =
      {};  // the transfer before it on the same stream of its first lane
  std::int64_t isolated = 0;
  std::int64_t back_to_back = 0;
  std::int64_t latency = 0;  // of its time: what loads no link (collective_table.h)
  GpuShare gpu = {};
  std::optional<std::int32_t> curve =
      {};                         // of which it is a point, as the builder of the graph counts them
  std::int32_t lanes = 0;         // who takes part: index into StepGraph::lane_sets
  std::int32_t first_demand = 0;  // of StepGraph::demands
  std::int32_t demands = 0;

  // Nanoseconds for a start `gap` ns after the end of the transfer before it.
  [[nodiscard]] std::int64_t duration(std::int64_t gap) const {
    if (isolated < back_to_back) return std::max(isolated, back_to_back - gap);
    return std::min(isolated, back_to_back + gap);
  }
};

// One node to append. Work of kind Transfer is added with its Transfer.
struct Node {
  Work work{};
  NodeKind kind = NodeKind::Compute;
  SlotId slot = 0;
  models::KernelClass kernel = models::KernelClass::Other;
  std::int32_t owner = 0;
  std::int64_t release = 0;  // earliest start, >= 0
};

struct StepGraph {
  std::int32_t lanes = 1;
  std::vector<Slot> slots;  // the first `lanes` of them: the compute stream of each lane
  std::vector<models::Contention> contention;  // of each lane; empty: nothing slows anything down
  std::vector<std::vector<std::int32_t>> lane_sets;  // sorted: who takes part in transfers
  std::int32_t resources = 0;                        // links of all lanes, out and in
  bool shares_links = false;    // whether two transfers in flight may load the same one
  bool shares_memory = false;   // whether memory may hold back a transfer (sim/rates.h)
  std::int64_t launch_gap = 0;  // ns, included in the work of all nodes but transfers

  // Per node.
  std::vector<Work> work;
  std::vector<std::int64_t> release;  // empty: all 0
  std::vector<NodeKind> kind;
  std::vector<models::KernelClass> kernel;
  std::vector<SlotId> slot;
  std::vector<std::int32_t> owner;
  std::vector<std::int32_t> predecessor_begin = {0};  // and one more
  // Per edge, by the node that waits.
  std::vector<NodeId> predecessors;
  std::vector<EdgeKind> edge_kind;
  std::vector<std::int64_t> lag;  // empty: all 0
  std::vector<std::int32_t> successor_begin,
      successors;  // of link(); not kept by append() and truncate()

  std::vector<Transfer> transfers;  // in node order
  std::vector<Demand> demands;
  std::vector<NodeId> step_begin;  // the first node of each step, in node order

  [[nodiscard]] NodeId size() const { return static_cast<NodeId>(work.size()); }
  [[nodiscard]] std::int32_t steps() const { return static_cast<std::int32_t>(step_begin.size()); }

  // Forgets everything but keeps the memory.
  void clear();
  // From here on nodes are of the next step.
  void begin_step() { step_begin.push_back(size()); }
  // REQUIRES: edges come from nodes of the graph; the slot exists; release >= 0.
  NodeId append(const Node& node, std::span<const Edge> edges);
  // The same of a transfer; its node, demands and work are filled in.
  NodeId append(Node node, Transfer transfer, std::span<const Demand> wants,
                std::span<const Edge> edges);
  // Ops that follow the last `side_by_side` nodes, each on all of their slots, one node per slot, which waits for the one
  // before it there. works: [op][slot]; releases: of each op, or none. REQUIRES: those nodes are alike but for their
  // slots and times, and the last ones of these.
  void append_chain(std::int32_t side_by_side, std::span<const Work> works,
                    std::span<const models::KernelClass> kernels,
                    std::span<const std::int64_t> releases = {});
  // Appends the last step once more: whatever it waits for, the copy waits for what stands as far behind in the step before; owners
  // are `owners` further, releases as they were. REQUIRES: there are two steps, of equally many nodes.
  void repeat_step(std::int32_t owners);
  // Makes room for as many steps, each like the last one.
  void reserve_steps(std::int32_t steps);
  // Of these nodes: no earlier start.
  void hold(NodeId first, std::int32_t count, std::int64_t until) {
    if (until == 0) return;
    release.resize(work.size(), 0);
    for (NodeId node = first; node < first + count; ++node) {
      std::int64_t& earliest = release[static_cast<std::size_t>(node)];
      earliest = std::max(earliest, until);
    }
  }
  // Takes away all nodes from this one on, with their edges, transfers and steps; lane sets stay.
  void truncate(NodeId node);
  // Makes the lists of successors, which the player with rates needs (sim/player.h).
  void link();

  [[nodiscard]] NodeId step_end(std::int32_t step) const {
    return step + 1 < steps() ? step_begin[static_cast<std::size_t>(step) + 1] : size();
  }
  [[nodiscard]] bool is_transfer(NodeId node) const {
    return work[static_cast<std::size_t>(node)].is_transfer();
  }
  // REQUIRES: the node is a transfer.
  [[nodiscard]] const Transfer& transfer(NodeId node) const {
    return transfers[work[static_cast<std::size_t>(node)].index()];
  }
  [[nodiscard]] const Slot& slot_of(NodeId node) const {
    return slots[static_cast<std::size_t>(slot[static_cast<std::size_t>(node)])];
  }
  // The lanes of a node, rising: its own one, or those that take part in a transfer.
  [[nodiscard]] std::span<const std::int32_t> lanes_of(NodeId node) const {
    if (!is_transfer(node)) return {&slot_of(node).lane, 1};
    return lane_sets[static_cast<std::size_t>(transfer(node).lanes)];
  }
  [[nodiscard]] bool takes_part(NodeId node, std::int32_t lane) const {
    return std::ranges::binary_search(lanes_of(node), lane);
  }
  [[nodiscard]] std::int64_t release_of(NodeId node) const {
    return release.empty() ? 0 : release[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] std::int64_t lag_of(std::size_t edge) const { return lag.empty() ? 0 : lag[edge]; }
  // Positions in the lists of edges: of what the node waits for.
  struct EdgeRange {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  [[nodiscard]] EdgeRange edges_of(NodeId node) const {
    const auto n = static_cast<std::size_t>(node);
    return {static_cast<std::size_t>(predecessor_begin[n]),
            static_cast<std::size_t>(predecessor_begin[n + 1])};
  }
  [[nodiscard]] std::span<const NodeId> predecessors_of(NodeId node) const {
    const EdgeRange edges = edges_of(node);
    return std::span(predecessors).subspan(edges.begin, edges.end - edges.begin);
  }
  [[nodiscard]] Edge edge(std::size_t at) const {
    return {predecessors[at], edge_kind[at], lag_of(at)};
  }
};

// When each node began and ended, in ns from the start of step 0.
struct Timeline {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> end;

  [[nodiscard]] std::int64_t start_of(NodeId node) const {
    return start[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] std::int64_t end_of(NodeId node) const {
    return end[static_cast<std::size_t>(node)];
  }
};

// Why a node started when it did: the edge that let it start last, of equals the first; nothing where it was its
// release, or where it waits for nothing.
std::optional<Edge> started_by(const StepGraph& graph, const Timeline& timeline, NodeId node);

// When the last of what a node waits for let it start, its release apart; 0 where it waits for nothing.
std::int64_t ready_at(const StepGraph& graph, const Timeline& timeline, NodeId node);

}  // namespace dovetail::step
