// Puts the figures of a cluster's links into NCCL's estimate, and lines where that has none.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/topology.h"

#include "base/error.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
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

// A level between nodes that a group's bytes pass.
struct Crossed {
  const Level* level;
  double inner, outer;  // units that the level joins, and makes of them
  double per_unit;      // ranks on each that it joins

  [[nodiscard]] double rate() const { return per_unit * level->rate.count(); }
};

std::vector<Crossed> crossed_by(const Topology& topology, const CollectiveKey& key) {
  std::vector<Crossed> crossed;
  for (std::size_t i = 1; i < topology.levels.size(); ++i) {
    const std::int64_t inner = key.units(i - 1);
    const std::int64_t outer = i + 1 == topology.levels.size() ? 1 : key.units(i);
    if (inner <= 1) break;
    crossed.push_back({&topology.levels[i], static_cast<double>(inner), static_cast<double>(outer),
                       static_cast<double>(key.ranks) / static_cast<double>(inner)});
  }
  return crossed;
}

// Of a rank's bus between nodes, over the tightest level.
double network_rate(const std::vector<Crossed>& crossed) {
  double least = std::numeric_limits<double>::infinity();
  for (const Crossed& one : crossed) least = std::min(least, one.rate());
  return least;
}

// A mean over the hops of a group, of which `hops_of` gives those of a level.
template <class HopsOf>
double mean_hop_us(const std::vector<Crossed>& crossed, HopsOf hops_of) {
  double hops = 0;
  double us = 0;
  for (const Crossed& one : crossed) {
    hops += hops_of(one);
    us += hops_of(one) * to_us(one.level->hop);
  }
  return us / hops;
}

NcclSystem nccl_system(const Topology& topology, const CollectiveKey& key) {
  const Level& node = topology.node();
  NcclSystem system{.gpu = topology.gpu,
                    .channels = topology.gpu == NcclGpu::Blackwell ? 32.0 : 24.0,
                    .node_rate = node.rate,
                    .nvls_rate = node.all_reduce_rate,
                    .network_rate = node.rate,
                    .node_hop = node.hop,
                    .ll128_between_nodes = topology.levels.at(1).ll128,
                    .nvls_tree_nodes = kMostNodesOfSwitches};
  const std::vector<Crossed> crossed = crossed_by(topology, key);
  if (crossed.empty()) return system;
  const auto beyond = [](double hop_us) {
    return from_us(std::max(0.0, (hop_us - kNcclNetworkHopUs) / 2));
  };
  system.network_rate = BytesPerSecond(network_rate(crossed) / Placed(key).per_node);
  system.ring_interface =
      beyond(mean_hop_us(crossed, [](const Crossed& one) { return one.inner - one.outer; }));
  system.tree_interface = beyond(
      mean_hop_us(crossed, [](const Crossed& one) { return std::log2(one.inner / one.outer); }));
  for (const Crossed& one : crossed) {
    system.network_start = std::max(system.network_start, one.level->start);
    system.network_block = std::max(system.network_block, one.level->block);
  }
  return system;
}

void add_load(std::vector<NamedLoad>& loads, const Level& level, double share) {
  if (share > 0) loads.push_back({level.link, std::min(1.0, share)});
}

// Of large messages: what a bus at its full rate needs of each level.
std::vector<NamedLoad> nccl_loads(const Topology& topology, const CollectiveKey& key) {
  const std::vector<Crossed> crossed = crossed_by(topology, key);
  std::vector<NamedLoad> loads;
  if (crossed.empty()) {
    add_load(loads, topology.node(), 1);
    return loads;
  }
  const bool crosses_once = key.collective == Collective::AllReduce && key.nodes == 2;
  const double times = crosses_once ? 2 : 1;
  const double node = (crosses_once ? topology.node().all_reduce_rate.value_or(topology.node().rate)
                                    : topology.node().rate)
                          .count();
  const double bus = std::min(node, times * network_rate(crossed));
  add_load(loads, topology.node(), Placed(key).per_node > 1 ? bus / node : 0);
  for (const Crossed& one : crossed) add_load(loads, *one.level, bus / (times * one.rate()));
  return loads;
}

// Hops and bytes per second of what NCCL has no estimate of.
struct Line {
  double node_hops = 0;
  double network_us = 0;  // hops between nodes
  double rate = 1;
  double start_us = 0;
};

AlphaBeta in_protocol(const Topology& topology, const Line& line, const Protocol& protocol,
                      bool in_one_node) {
  const double latency = protocol.base_us + protocol.start * line.start_us +
                         protocol.node_hop * line.node_hops * to_us(topology.node().hop) +
                         protocol.network_hop * line.network_us;
  double rate = line.rate * protocol.share;
  if (protocol.share < 1 && !in_one_node)
    rate = std::min(rate, kLowLatencyCap * topology.node().rate.count());
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
  const std::vector<Crossed> crossed = crossed_by(topology, key);
  const double inside = (placed.per_node - 1) / placed.ranks / topology.node().rate.count();
  const auto seconds_of = [&](const Crossed& one) {
    return (placed.ranks - one.per_unit) / placed.ranks / one.level->rate.count();
  };
  Line line{.node_hops = rounds_for(placed.per_node - 1)};
  double slowest = inside;
  for (const Crossed& one : crossed) {
    slowest = std::max(slowest, seconds_of(one));
    const double reached = placed.ranks / one.outer;  // by this level and those within
    line.network_us += rounds_for(reached - one.per_unit) * to_us(one.level->hop);
    line.start_us = std::max(line.start_us, to_us(one.level->start));
  }
  line.rate = 1 / slowest;
  std::vector<NamedLoad> loads;
  add_load(loads, topology.node(), inside / slowest);
  for (const Crossed& one : crossed) add_load(loads, *one.level, seconds_of(one) / slowest);
  return by_line(topology, line, std::move(loads), placed.in_one_node());
}

ModelledCollective send(const Topology& topology, const CollectiveKey& key) {
  const std::vector<Crossed> crossed = crossed_by(topology, key);
  std::vector<NamedLoad> loads;
  if (crossed.empty()) {
    add_load(loads, topology.node(), 1);
    return by_line(topology, {.node_hops = 1, .rate = topology.node().rate.count()},
                   std::move(loads), true);
  }
  const double rate = network_rate(crossed);
  for (const Crossed& one : crossed) add_load(loads, *one.level, rate / one.rate());
  const double hop_us = to_us(crossed.back().level->hop);
  return by_line(topology, {.network_us = hop_us, .rate = rate}, std::move(loads), false);
}

std::string in_gigabytes(BytesPerSecond rate) {
  return std::to_string(std::llround(rate.count() / 1e9)) + " GB/s";
}

}  // namespace

std::vector<std::int64_t> Topology::unit_ranks() const {
  std::vector<std::int64_t> ranks;
  for (const Level& level : levels) {
    if (level.ranks > 0) ranks.push_back(level.ranks);
  }
  return ranks;
}

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

CollectiveKey key_of(Collective kind, const schedule::ProcessGroup& group,
                     std::span<const std::int64_t> unit_ranks) {
  return placed(kind, group.size(), unit_ranks,
                [&](std::int64_t ranks) { return nodes_of(group, ranks); });
}

CollectiveKey key_of_neighbours(Collective kind, std::int64_t ranks, std::int64_t nodes,
                                const Topology& topology) {
  const std::int64_t node = topology.node_ranks();
  if (nodes == 0) nodes = nodes_of_neighbours(ranks, node);
  return placed(kind, ranks, topology.unit_ranks(),
                [&](std::int64_t unit) { return nodes_of_neighbours(nodes * node, unit); });
}

ModelledCollective modelled(const Topology& topology, CollectiveKey key) {
  DOVETAIL_CHECK(key.ranks >= 2 && key.nodes >= 1 && key.nodes <= key.ranks)
      << key.ranks << " ranks on " << key.nodes << " nodes";
  if (key.collective == Collective::AllToAll) return exchange(topology, key);
  if (key.collective == Collective::SendRecv) return send(topology, key);
  return {.time = nccl_curve(nccl_system(topology, key), key), .loads = nccl_loads(topology, key)};
}

std::string to_string(const Topology& topology) {
  std::string text;
  for (const Level& level : topology.levels) {
    const bool is_first = &level == &topology.levels.front();
    text += (is_first ? "" : ", ") + level.link + " " + in_gigabytes(level.rate) +
            (is_first ? " and " : " a rank and ") + dovetail::to_string(level.hop) + " a hop";
  }
  return text;
}

}  // namespace dovetail::models
