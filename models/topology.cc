// The ways in which NCCL can do a collective as lines, and the curve below all of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/topology.h"

#include "base/error.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

namespace dovetail::models {
namespace {

using schedule::Collective;

// NCCL's tuning.cc. A hop of LL is 0.6 of 3.4 us in a node, and about (2.7 + 5) of (14 + 10) us between nodes with 5 us of
// an interface.
struct Protocol {
  double base_us, node_hop, network_hop, start, share;
};
constexpr Protocol kSimple{.base_us = 8.4, .node_hop = 1, .network_hop = 1, .start = 1, .share = 1};
constexpr Protocol kLowLatency{
    .base_us = 6.6, .node_hop = 0.18, .network_hop = 0.32, .start = 0, .share = 0.5};
constexpr double kLowLatencyCap = 0.125;  // of a node's rate, between nodes
constexpr double kTreeShare = 0.92;
constexpr double kPlainTree = 0.85;
constexpr double kPatShare = 0.75;
constexpr double kPatHops = 1 / 3.5;
constexpr double kPatRankUs = 2.8;
constexpr std::int64_t kPeersAtOnce = 8;

double rounds_for(double peers) { return std::ceil(peers / static_cast<double>(kPeersAtOnce)); }

// A way to do it, whatever the protocol.
struct Way {
  double node_hops = 0, network_hops = 0;
  double fixed_us = 0;
  double wire = 1;      // of the bytes, on each rank's bus
  double bus = 1;       // bytes per second
  double share = 1;     // of the bus that this way reaches
  bool starts = false;  // NetworkLinks::start
};

struct Group {
  double ranks, nodes, per_node;

  [[nodiscard]] bool in_one_node() const { return nodes <= 1; }
};

class Ways {
 public:
  Ways(const Topology& topology, const CollectiveKey& key)
      : topology_(topology),
        group_{.ranks = static_cast<double>(key.ranks),
               .nodes = static_cast<double>(key.nodes),
               .per_node = static_cast<double>(key.ranks) / static_cast<double>(key.nodes)} {
    const double gathered = (group_.ranks - 1) / group_.ranks;
    switch (key.collective) {
      case Collective::AllReduce:
        add_ring(2, 2 * gathered);
        if (!group_.in_one_node()) add_tree(2 * gathered);
        break;
      case Collective::AllGather:
      case Collective::ReduceScatter:
        add_ring(1, gathered);
        if (!group_.in_one_node() && key.nodes == key.ranks) add_pat(gathered);
        break;
      case Collective::Broadcast:
        add_ring(1, 1);
        break;
      case Collective::AllToAll:
        add_exchange();
        break;
      case Collective::SendRecv:
        add_send();
        break;
    }
  }

  [[nodiscard]] std::vector<AlphaBeta> lines() const {
    std::vector<AlphaBeta> lines;
    for (const Way& way : ways_) {
      for (const Protocol* protocol : {&kSimple, &kLowLatency}) {
        lines.push_back(line(way, *protocol));
      }
    }
    return lines;
  }

  // Of large messages.
  [[nodiscard]] std::vector<NamedLoad> loads() const {
    std::vector<NamedLoad> loads;
    const auto add = [&loads](const std::string& link, double share) {
      if (share > 0) loads.push_back({link, std::min(1.0, share)});
    };
    add(topology_.node.link, node_load_);
    add(topology_.network.link, network_load_);
    return loads;
  }

 private:
  [[nodiscard]] double node_rate() const { return topology_.node.rate.count(); }
  [[nodiscard]] double reduce_rate() const {
    return topology_.node.all_reduce_rate.value_or(topology_.node.rate).count();
  }
  [[nodiscard]] double network_rate() const { return topology_.network.rate.count(); }
  [[nodiscard]] double node_network_rate() const { return group_.per_node * network_rate(); }

  // Of bytes that go round, and what they load where.
  double ring_bus(bool reduces) {
    if (group_.in_one_node()) {
      node_load_ = 1;
      return reduces ? reduce_rate() : node_rate();
    }
    const double bus = std::min(node_rate(), node_network_rate());
    node_load_ = group_.per_node > 1 ? bus / node_rate() : 0;
    network_load_ = bus / node_network_rate();
    return bus;
  }

  void add_ring(double rounds, double wire) {
    ways_.push_back({.node_hops = rounds * (group_.ranks - group_.nodes),
                     .network_hops = rounds * (group_.nodes - 1),
                     .wire = wire,
                     .bus = ring_bus(rounds > 1),
                     .starts = !group_.in_one_node()});
  }

  void add_tree(double wire) {
    Way tree{.node_hops = 2 * (group_.per_node - 1),
             .network_hops = 2 * std::log2(group_.nodes),
             .wire = wire,
             .bus = std::min(node_rate(), node_network_rate()),
             .share = kTreeShare * kPlainTree,
             .starts = true};
    if (group_.nodes <= 2) {
      const bool in_switch = topology_.node.all_reduce_rate.has_value() && group_.per_node > 1;
      const double inside = (in_switch ? kTreeShare : tree.share) * reduce_rate();
      tree.bus = std::min(inside, 2 * node_network_rate());
      tree.share = 1;
      node_load_ = tree.bus / reduce_rate();
      network_load_ = tree.bus / (2 * node_network_rate());
    }
    ways_.push_back(tree);
  }

  void add_pat(double wire) {
    ways_.push_back({.network_hops = kPatHops * std::log2(group_.nodes),
                     .fixed_us = kPatRankUs * group_.ranks,
                     .wire = wire,
                     .bus = network_rate(),
                     .share = kPatShare,
                     .starts = true});
  }

  void add_exchange() {
    const double inside = (group_.per_node - 1) / group_.ranks / node_rate();
    const double outside = (group_.ranks - group_.per_node) / group_.ranks / network_rate();
    const double slower = std::max(inside, outside);
    node_load_ = inside / slower;
    network_load_ = outside / slower;
    ways_.push_back({.node_hops = rounds_for(group_.per_node - 1),
                     .network_hops = rounds_for(group_.ranks - group_.per_node),
                     .bus = 1 / slower,
                     .starts = !group_.in_one_node()});
  }

  void add_send() {
    const bool inside = group_.in_one_node();
    (inside ? node_load_ : network_load_) = 1;
    ways_.push_back({.node_hops = inside ? 1.0 : 0.0,
                     .network_hops = inside ? 0.0 : 1.0,
                     .bus = inside ? node_rate() : network_rate()});
  }

  [[nodiscard]] AlphaBeta line(const Way& way, const Protocol& protocol) const {
    const double start = way.starts ? protocol.start * to_us(topology_.network.start) : 0;
    const double latency = protocol.base_us + way.fixed_us + start +
                           protocol.node_hop * way.node_hops * to_us(topology_.node.hop) +
                           protocol.network_hop * way.network_hops * to_us(topology_.network.hop);
    double rate = way.bus * way.share * protocol.share;
    if (protocol.share < 1 && !group_.in_one_node()) {
      rate = std::min(rate, kLowLatencyCap * node_rate());
    }
    return {.alpha = from_us(latency), .ns_per_byte = 1e9 * way.wire / rate};
  }

  const Topology& topology_;
  Group group_;
  std::vector<Way> ways_;
  double node_load_ = 0, network_load_ = 0;
};

double value_at(const AlphaBeta& line, double bytes) {
  return static_cast<double>(line.alpha.count()) + line.ns_per_byte * bytes;
}

// The least of the lines at each size. It bends where the line in force is met by a flatter one.
CollectiveTable least_of(std::span<const AlphaBeta> lines) {
  std::vector<CollectiveTable::Knot> knots;
  const AlphaBeta* line = &*std::ranges::min_element(
      lines, {}, [](const AlphaBeta& one) { return std::pair(one.alpha, one.ns_per_byte); });
  for (double bytes = 0; line != nullptr;) {
    knots.push_back({.bytes = bytes,
                     .isolated_ns = value_at(*line, bytes),
                     .back_to_back_ns = value_at(*line, bytes),
                     .isolated_slope = line->ns_per_byte,
                     .back_to_back_slope = line->ns_per_byte});
    const AlphaBeta* next = nullptr;
    double meets = std::numeric_limits<double>::infinity();
    for (const AlphaBeta& other : lines) {
      if (other.ns_per_byte >= line->ns_per_byte) continue;
      const double here = static_cast<double>((other.alpha - line->alpha).count()) /
                          (line->ns_per_byte - other.ns_per_byte);
      const bool is_flatter = next != nullptr && other.ns_per_byte < next->ns_per_byte;
      if (here < meets || (here == meets && is_flatter)) {
        meets = here;
        next = &other;
      }
    }
    bytes = meets;
    line = next;
  }
  return CollectiveTable(std::move(knots));
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
  const Ways ways(topology, key);
  return {.time = least_of(ways.lines()), .loads = ways.loads()};
}

std::string to_string(const Topology& topology) {
  return topology.node.link + " " + in_gigabytes(topology.node.rate) + " and " +
         dovetail::to_string(topology.node.hop) + " a hop, " + topology.network.link + " " +
         in_gigabytes(topology.network.rate) + " a rank and " +
         dovetail::to_string(topology.network.hop) + " a hop";
}

}  // namespace dovetail::models
