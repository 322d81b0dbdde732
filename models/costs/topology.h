// The links between the ranks of a cluster, and how long a collective takes over them that nobody measured.
//
//   nodes_of(group, 8)                                     // on how many nodes its ranks lie
//   modelled(topology, {Collective::AllReduce, 64, 8})     // a curve, and what it loads of which link
//
// n ranks on m nodes, r = n / m on each. B: bytes per second of a rank's bus, in one direction, i.e. the bus bandwidth that
// nccl-tests would print for large messages. All-reduce, all-gather, reduce-scatter and broadcast are what NCCL itself
// estimates (nccl_model.h) with the rates and hops of the cluster in place of its own:
//
//   node.rate, node.all_reduce_rate      of rings and trees in nodes; of switches that reduce
//   node.hop                             3.4 us on NVLink; hops of other protocols in proportion
//   network.rate, network.hop            of each rank's interface; 14 us and twice the interface's latency
//   network.start                        once, of a collective in Simple between nodes
//   network.block                        of each of the n - 1 (all-reduce: 2 n - 2) blocks that a ring in Simple sends over every link
//                                        between nodes: EFA 42 us, so that an all-gather over 512 ranks takes 21 ms before a byte counts
//
// Of each algorithm NCCL's own estimate chooses the protocol, without start and block, of which it does not know; of the algorithms
// the quickest counts, as a tuner that knows the network has it.
// But: no LL128 between nodes, and switches help on two nodes at most. The others are lines, base + hops + bytes / rate, the lesser one of two protocols (Simple; LL with 0.18 of a
// node's hop, 0.32 of the network's and half of the rate):
//
//   all-to-all  of S bytes (n - r) / n leave the node, by network.rate, while (r - 1) / n go by node.rate; the slower one counts.
//               Peers are served eight at a time, a hop each
//   send-recv   one hop, at the rate of the link between the two
//
// How good it is, unanchored: median (90th percentile) of the absolute errors over the shipped tables up to 64 KiB 27 %
// (45), to 8 MiB 24 % (44), beyond 17 % (41), nearly all of it too fast. Best runs of 1 GiB over EFA on 4 to 64 nodes of eight H100 (NCCL
// 2.18): all-gathers and reduce-scatters, from which block is, within 5 % but for one (-10), all-reduces 13 to 28 % too fast; all-reduces of 64 MiB to 8 GiB on
// four nodes of eight B200 with EFA, from which nothing is, 3 % too fast to 29 % too slow; on two with RoCE 7 to 30 % too fast.
// The shape is better than the height: hence tables of a machine anchor it (cluster.h).
// Leaves out: congestion, in-switch reduction between nodes, nodes with unequal numbers of ranks (their mean counts), rails.
//
// Links in flight together (LinkLoad): a collective loads the node's link with B / node.rate, the network's with
// B / (r * network.rate), each at most 1; so tensor parallelism in a node and data parallelism across nodes do not share.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/costs/costs.h"
#include "models/costs/nccl_model.h"
#include "models/rates/collective_table.h"
#include "schedule/program.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::models {

struct NodeLinks {
  std::string link = "nvlink";
  BytesPerSecond rate;                                 // of each rank's bus
  std::optional<BytesPerSecond> all_reduce_rate = {};  // in-switch reduction; absent: rate
  Duration hop{};
  friend bool operator==(const NodeLinks&, const NodeLinks&) = default;
};

struct NetworkLinks {
  std::string link = "network";
  BytesPerSecond rate;  // of each rank
  Duration hop{};
  Duration start{};  // of one collective
  Duration block{};  // of each of a ring's blocks, at every link between nodes
  friend bool operator==(const NetworkLinks&, const NetworkLinks&) = default;
};

// Rank r lies on node r / node_ranks.
struct Topology {
  std::int64_t node_ranks = 1;
  NcclGpu gpu = NcclGpu::Hopper;
  NodeLinks node;
  NetworkLinks network;
  friend bool operator==(const Topology&, const Topology&) = default;
};

// Of the instance on the most nodes, which is the slowest. REQUIRES: node_ranks >= 1.
std::int64_t nodes_of(const schedule::ProcessGroup& group, std::int64_t node_ranks);

// Of ranks that follow each other from the start of a node.
std::int64_t nodes_of_neighbours(std::int64_t ranks, std::int64_t node_ranks);

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
