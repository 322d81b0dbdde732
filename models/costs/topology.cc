// Puts the figures of a cluster's links into NCCL's estimate, and lines where that has none.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/topology.h"

#include "base/error.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace dovetail::models {
namespace {

using schedule::Collective;

// A hop of LL is 0.6 of 3.4 us in a node, and about (2.7 + 5) of (14 + 10) us between nodes with 5 us of an interface.
struct Protocol {
  double base_us, node_hop, network_hop, start, share;
};
constexpr Protocol kSimple{.base_us = 8.4, .node_hop = 1, .network_hop = 1, .start = 1, .share = 1};
constexpr Protocol kLowLatency{
    .base_us = 6.6, .node_hop = 0.18, .network_hop = 0.32, .start = 0, .share = 0.5};
constexpr double kLowLatencyCap = 0.125;  // of a node's rate, between nodes
constexpr std::int64_t kPeersAtOnce = 8;
constexpr double kNcclNetworkHopUs = 14;
constexpr std::int64_t kMostNodesOfSwitches = 2;

double rounds_for(double peers) { return std::ceil(peers / static_cast<double>(kPeersAtOnce)); }

struct Placed {
  double ranks, nodes, per_node;

  explicit Placed(const CollectiveKey& key)
      : ranks(static_cast<double>(key.ranks)),
        nodes(static_cast<double>(key.nodes)),
        per_node(ranks / nodes) {}
  [[nodiscard]] bool in_one_node() const { return nodes <= 1; }
};

NcclSystem nccl_system(const Topology& topology) {
  const double beyond_us = to_us(topology.network.hop) - kNcclNetworkHopUs;
  return {.gpu = topology.gpu,
          .channels = topology.gpu == NcclGpu::Blackwell ? 32.0 : 24.0,
          .node_rate = topology.node.rate,
          .nvls_rate = topology.node.all_reduce_rate,
          .network_rate = topology.network.rate,
          .node_hop = topology.node.hop,
          .interface_latency = from_us(std::max(0.0, beyond_us / 2)),
          .network_start = topology.network.start,
          .network_block = topology.network.block,
          .ll128_between_nodes = false,
          .nvls_tree_nodes = kMostNodesOfSwitches};
}

// Of large messages: what of the node's link and of the network's a bus of this rate needs.
std::vector<NamedLoad> loads_of(const Topology& topology, double node_share, double network_share) {
  std::vector<NamedLoad> loads;
  const auto add = [&loads](const std::string& link, double share) {
    if (share > 0) loads.push_back({link, std::min(1.0, share)});
  };
  add(topology.node.link, node_share);
  add(topology.network.link, network_share);
  return loads;
}

std::vector<NamedLoad> nccl_loads(const Topology& topology, const CollectiveKey& key) {
  const Placed placed(key);
  if (placed.in_one_node()) return loads_of(topology, 1, 0);
  const bool crosses_once = key.collective == Collective::AllReduce && key.nodes == 2;
  const double network = (crosses_once ? 2 : 1) * placed.per_node * topology.network.rate.count();
  const double node = (crosses_once ? topology.node.all_reduce_rate.value_or(topology.node.rate)
                                    : topology.node.rate)
                          .count();
  const double bus = std::min(node, network);
  return loads_of(topology, placed.per_node > 1 ? bus / node : 0, bus / network);
}

// Hops and bytes per second of what NCCL has no estimate of.
struct Line {
  double node_hops = 0, network_hops = 0;
  double rate = 1;
  bool starts = false;  // NetworkLinks::start
};

AlphaBeta in_protocol(const Topology& topology, const Line& line, const Protocol& protocol,
                      bool in_one_node) {
  const double start = line.starts ? protocol.start * to_us(topology.network.start) : 0;
  const double latency = protocol.base_us + start +
                         protocol.node_hop * line.node_hops * to_us(topology.node.hop) +
                         protocol.network_hop * line.network_hops * to_us(topology.network.hop);
  double rate = line.rate * protocol.share;
  if (protocol.share < 1 && !in_one_node)
    rate = std::min(rate, kLowLatencyCap * topology.node.rate.count());
  return {.alpha = from_us(latency), .ns_per_byte = 1e9 / rate};
}

double value_at(const AlphaBeta& line, double bytes) {
  return static_cast<double>(line.alpha.count()) + line.ns_per_byte * bytes;
}

// The quick protocol until the other one takes less.
CollectiveTable least_of(const AlphaBeta& quick, const AlphaBeta& steady) {
  const auto knot = [](const AlphaBeta& line, double bytes) {
    return CollectiveTable::Knot{.bytes = bytes,
                                 .isolated_ns = value_at(line, bytes),
                                 .back_to_back_ns = value_at(line, bytes),
                                 .isolated_slope = line.ns_per_byte,
                                 .back_to_back_slope = line.ns_per_byte};
  };
  const double ahead = static_cast<double>((steady.alpha - quick.alpha).count());
  const double closing = quick.ns_per_byte - steady.ns_per_byte;
  std::vector<CollectiveTable::Knot> knots = {knot(quick, 0)};
  if (closing > 0) knots.push_back(knot(steady, ahead / closing));
  return CollectiveTable(std::move(knots));
}

ModelledCollective by_line(const Topology& topology, const Line& line, std::vector<NamedLoad> loads,
                           bool in_one_node) {
  return {.time = least_of(in_protocol(topology, line, kLowLatency, in_one_node),
                           in_protocol(topology, line, kSimple, in_one_node)),
          .loads = std::move(loads)};
}

ModelledCollective exchange(const Topology& topology, const CollectiveKey& key) {
  const Placed placed(key);
  const double inside = (placed.per_node - 1) / placed.ranks / topology.node.rate.count();
  const double outside =
      (placed.ranks - placed.per_node) / placed.ranks / topology.network.rate.count();
  const double slower = std::max(inside, outside);
  return by_line(topology,
                 {.node_hops = rounds_for(placed.per_node - 1),
                  .network_hops = rounds_for(placed.ranks - placed.per_node),
                  .rate = 1 / slower,
                  .starts = !placed.in_one_node()},
                 loads_of(topology, inside / slower, outside / slower), placed.in_one_node());
}

ModelledCollective send(const Topology& topology, const CollectiveKey& key) {
  const bool inside = key.nodes == 1;
  return by_line(topology,
                 {.node_hops = inside ? 1.0 : 0.0,
                  .network_hops = inside ? 0.0 : 1.0,
                  .rate = (inside ? topology.node.rate : topology.network.rate).count()},
                 loads_of(topology, inside ? 1 : 0, inside ? 0 : 1), inside);
}

std::string in_gigabytes(BytesPerSecond rate) {
  return std::to_string(std::llround(rate.count() / 1e9)) + " GB/s";
}

}  // namespace

std::int64_t nodes_of(const schedule::ProcessGroup& group, std::int64_t node_ranks) {
  const auto size = static_cast<std::size_t>(group.size());
  std::int64_t most = 1;
  for (std::size_t begin = 0; begin + size <= group.ranks.size() && size > 0; begin += size) {
    // Ranks rise within an instance; neighbours leave out no node.
    const std::int64_t first = group.ranks[begin].value;
    const std::int64_t last = group.ranks[begin + size - 1].value;
    std::int64_t nodes = last / node_ranks - first / node_ranks + 1;
    if (last - first + 1 != static_cast<std::int64_t>(size)) {
      nodes = 1;
      for (std::size_t i = begin + 1; i < begin + size; ++i) {
        if (group.ranks[i].value / node_ranks != group.ranks[i - 1].value / node_ranks) ++nodes;
      }
    }
    most = std::max(most, nodes);
  }
  return most;
}

std::int64_t nodes_of_neighbours(std::int64_t ranks, std::int64_t node_ranks) {
  return (ranks + node_ranks - 1) / node_ranks;
}

ModelledCollective modelled(const Topology& topology, CollectiveKey key) {
  DOVETAIL_CHECK(key.ranks >= 2 && key.nodes >= 1 && key.nodes <= key.ranks)
      << key.ranks << " ranks on " << key.nodes << " nodes";
  if (key.collective == Collective::AllToAll) return exchange(topology, key);
  if (key.collective == Collective::SendRecv) return send(topology, key);
  return {.time = nccl_curve(nccl_system(topology), key), .loads = nccl_loads(topology, key)};
}

std::string to_string(const Topology& topology) {
  return topology.node.link + " " + in_gigabytes(topology.node.rate) + " and " +
         dovetail::to_string(topology.node.hop) + " a hop, " + topology.network.link + " " +
         in_gigabytes(topology.network.rate) + " a rank and " +
         dovetail::to_string(topology.network.hop) + " a hop";
}

}  // namespace dovetail::models
