// The links between the ranks of a cluster, level by level, and how long a collective takes over them that nobody measured.
//
//   key_of(AllReduce, group, topology.unit_ranks())         // on how many nodes, racks, pods its ranks lie
//   modelled(topology, {Collective::AllReduce, 64, 8})     // a curve, and what it loads of which link
//
// Levels, innermost first: the links in a node, those between nodes, and where the network is not one but a tree those between racks and
// pods. A level joins units: the first one ranks to a node, the next nodes to a rack, the last all. n ranks on m nodes, r = n / m on each.
// B: bytes per second of a rank's bus, in one direction, i.e. the bus bandwidth that nccl-tests would print for large messages.
// All-reduce, all-gather, reduce-scatter and broadcast are what NCCL itself estimates (nccl_model.h) with the rates and hops of the
// cluster in place of its own:
//
//   rate     of the first level: of rings and trees in nodes, all_reduce_rate of switches that reduce. Of the others: each rank's share of
//            what leaves its unit of the level below: an interface; where a rack's uplinks carry half of its interfaces, half of one. A ring
//            over u units leaves each by all n / u ranks' shares, so B <= (n / u) rate at each level: rings pass an oversubscribed
//            level unhindered, all-to-all does not
//   hop      3.4 us on NVLink; hops of other protocols in proportion; 14 us and twice the interface's latency between nodes. A ring has
//            u - v hops between u units of v larger ones, a tree log2(u / v)
//   start    once, of a collective in Simple between nodes
//   block    of each of the n - 1 (all-reduce: 2 n - 2) blocks that a ring in Simple sends over every link of that level:
//            EFA 42 us, so that an all-gather over 512 ranks takes 21 ms before a byte counts
//
// Of each algorithm NCCL's own estimate chooses the protocol, without start and block, of which it does not know; of the algorithms
// the quickest counts, as a tuner that knows the network has it.
// But switches help on two nodes at most, and a modelled group takes no less than its part in one node. The others are lines,
// base + hops + bytes / rate, the lesser one of two protocols (Simple; LL with 0.18 of a node's hop, 0.32 of the network's and half of the rate):
//
//   all-to-all  of S bytes (n - n / u) / n leave each of u units by the rate of the level above, while (r - 1) / n stay in the node; the
//               slowest counts. Peers are served eight at a time, a hop each
//   send-recv   one hop, of the outermost level between the two
//
// How good it is, unanchored: median (90th percentile) of the absolute errors over the shipped tables up to 64 KiB 27 %
// (45), to 8 MiB 24 % (44), beyond 17 % (41), nearly all of it too fast (counted without LL128 between
// nodes; with it 31 sizes over InfiniBand went from 8 to 9.5 % in the median). Best runs of 1 GiB over EFA on 4 to 64 nodes of eight H100 (NCCL
// 2.18): all-gathers and reduce-scatters, from which block is, within 5 % but for one (-10), all-reduces 13 to 28 % too fast; all-reduces of 64 MiB to 8 GiB on
// four nodes of eight B200 with EFA, from which nothing is, 3 % too fast to 29 % too slow; on two with RoCE 7 to 30 % too fast.
// The shape is better than the height: hence tables of a machine anchor it (cluster.h).
// Leaves out: congestion, in-switch reduction between nodes, nodes with unequal numbers of ranks (their mean counts), rails.
//
// Links in flight together (LinkLoad): a collective loads the node's link with B / rate, that of another level with
// B / ((n / u) rate), each at most 1; so tensor parallelism in a node and data parallelism across nodes do not share.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/costs/costs.h"
#include "models/costs/nccl_model.h"
#include "models/rates/collective_table.h"
#include "schedule/program.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dovetail::models {

struct Level {
  std::string link;        // its name
  std::int64_t ranks = 0;  // of a unit that it makes, e.g. of a node; 0: all there are
  BytesPerSecond rate;     // of each rank
  std::optional<BytesPerSecond> all_reduce_rate =
      {};  // in-switch reduction in a node; absent: rate
  Duration hop{};
  Duration start{};   // of one collective
  Duration block{};   // of each of a ring's blocks
  bool ll128 = true;  // whether NCCL's LL128 is used between nodes; on EFA not
  friend bool operator==(const Level&, const Level&) = default;
};

// Rank r lies on node r / node_ranks(), in rack r / levels[1].ranks, ...
struct Topology {
  NcclGpu gpu = NcclGpu::Hopper;
  std::vector<Level>
      levels;  // two to kMostLevels, innermost first; ranks rise, each a multiple of those before

  [[nodiscard]] std::int64_t node_ranks() const { return levels.front().ranks; }
  [[nodiscard]] const Level& node() const { return levels.front(); }
  [[nodiscard]] std::vector<std::int64_t> unit_ranks() const;  // of a node, a rack, ...
  friend bool operator==(const Topology&, const Topology&) = default;
};

// Of the instance on the most nodes, which is the slowest; any unit of so many ranks. REQUIRES: node_ranks >= 1.
std::int64_t nodes_of(const schedule::ProcessGroup& group, std::int64_t node_ranks);

// Of ranks that follow each other from the start of a node.
std::int64_t nodes_of_neighbours(std::int64_t ranks, std::int64_t node_ranks);

// `units_of` gives how many units of so many ranks it lies on. No unit_ranks: where it lies is not known.
template <class UnitsOf>
CollectiveKey placed(schedule::Collective kind, std::int64_t ranks,
                     std::span<const std::int64_t> unit_ranks, UnitsOf units_of) {
  CollectiveKey key{kind, ranks};
  for (std::size_t i = 0; i < unit_ranks.size(); ++i)
    (i == 0 ? key.nodes : key.wider.at(i - 1)) = units_of(unit_ranks[i]);
  return key;
}
CollectiveKey key_of(schedule::Collective kind, const schedule::ProcessGroup& group,
                     std::span<const std::int64_t> unit_ranks);
// Of a collective over ranks that follow each other on `nodes` nodes; nodes 0: as few as can be.
CollectiveKey key_of_neighbours(schedule::Collective kind, std::int64_t ranks, std::int64_t nodes,
                                const Topology& topology);

struct NamedLoad {
  std::string link;
  double share = 1;
  friend bool operator==(const NamedLoad&, const NamedLoad&) = default;
};

struct ModelledCollective {
  CollectiveTable time;
  std::vector<NamedLoad> loads;
};

// REQUIRES: key.ranks >= 2, 1 <= key.nodes <= key.ranks.
ModelledCollective modelled(const Topology& topology, CollectiveKey key);

// "nvlink 350 GB/s and 3.4 us a hop, network 48 GB/s and 53 us a hop".
std::string to_string(const Topology& topology);

}  // namespace dovetail::models
