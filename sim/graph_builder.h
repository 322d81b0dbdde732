// Collects the nodes of a Graph and what they wait for; at the end joins them with edges.
//
// Called by compile.cc, which knows what the commands mean. A frontier is what the next command of
// one role on one stream waits for, as indices of command nodes: normally the command before it,
// after a WaitEvent also what the event stands for. Every add puts its entry there alone.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/graph.h"
#include "sim/lanes.h"

namespace dovetail::sim {

// Which command of which role an entry stands for.
struct Place {
  std::int32_t role = 0;
  std::int32_t command = 0;
  std::int32_t step = 0;
  StreamId stream;
  std::int64_t issued = 0;  // earliest start
};

// How long a collective takes and what it loads.
struct TransferCost {
  models::CollectiveTime time;
  Duration latency{};
  std::span<const models::LinkLoad> loads = {};
  // Of a send: the sender's index in its instance of the group. Absent: all send and receive.
  std::optional<std::int32_t> sender = {};
};

// Throws InputError where so many nanoseconds cannot be simulated: more than 2^60, 36 years.
void check_run(double ns);

class GraphBuilder {
 public:
  // `memory` is an old Graph whose memory is used again; `hosts_limit`: starts are held back.
  enum class Hosts { Limit, NeverLimit };
  GraphBuilder(const Lanes& lanes, std::size_t streams, std::size_t links, Hosts hosts,
               Graph memory);

  [[nodiscard]] std::vector<std::int32_t>& frontier(std::int32_t role, StreamId stream) {
    return frontier_[static_cast<std::size_t>(role) * streams_ +
                     static_cast<std::size_t>(stream.value)];
  }
  // Makes the next command on this stream wait for an entry, once.
  void wait_for(std::int32_t role, StreamId stream, std::int32_t entry);

  // Both return the entry's index. One node per lane of the role, with the work of each.
  std::int32_t add(const Place& place, NodeKind kind, std::span<const std::int64_t> work,
                   models::KernelClass kernel = models::KernelClass::Other);
  // One collective in which all these places meet over the group; its entries stand in their order.
  std::int32_t add_collective(std::span<const Place> places, const schedule::ProcessGroup& group,
                              const TransferCost& transfer);

  [[nodiscard]] Graph& graph() { return graph_; }
  // The finished Graph. Nothing may be added after it. Throws InputError where everything in a row would
  // take longer than can be simulated.
  Graph link();

 private:
  struct Meet {
    std::int32_t count = 1;
    std::int32_t instances = -1;          // index into graph_.instances
    std::vector<std::int32_t> lane_sets;  // of each node
  };
  const Meet& meeting(const schedule::ProcessGroup& group, std::int32_t role);
  void open_entry(const Place& place, NodeKind kind, NodeId first, std::int32_t count,
                  std::int32_t instances);
  void add_node(std::int64_t work, std::int64_t release, std::int32_t slot,
                models::KernelClass kernel);
  // Of one node: what it wants of the links of its lanes.
  void add_demands(CollectiveNode& node, std::span<const Place> places,
                   const schedule::ProcessGroup& group, const TransferCost& transfer);
  void append_predecessors(std::size_t entry, std::int32_t node);
  void append_dependencies_of(std::size_t entry, std::int32_t lane);
  void link_successors();
  [[nodiscard]] std::size_t channel(std::int32_t lane, StreamId stream) const {
    return static_cast<std::size_t>(lane) * streams_ + static_cast<std::size_t>(stream.value);
  }

  const Lanes& lanes_;
  const std::size_t streams_;
  const std::size_t links_;
  const bool hosts_limit_;
  Graph graph_;
  double work_ns_ = 0;                               // of all nodes together
  std::int64_t released_ = 0;                        // the latest release
  std::vector<std::vector<std::int32_t>> frontier_;  // [role][stream]
  std::vector<NodeId> last_collective_;              // [lane][stream]
  std::vector<std::int32_t> loaded_by_;  // of each resource: the first stream that loads it, or -1
  std::vector<std::int32_t> dependency_begin_, dependencies_;  // CSR: of each entry
  std::map<std::pair<std::int32_t, GroupId>, Meet> meetings_;  // of each role and group
};

}  // namespace dovetail::sim
