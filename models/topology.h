// The links between the ranks of a cluster, and how long a collective takes over them that nobody measured.
//
//   nodes_of(group, 8)                                     // on how many nodes its ranks lie
//   modelled(topology, {Collective::AllReduce, 64, 8})     // a curve, and what it loads of which link
//
// n ranks on m nodes, r = n / m on each. B: bytes per second of a rank's bus, in one direction, i.e. the bus bandwidth that
// nccl-tests would print for large messages. A collective takes the least of a few lines, each a way in which NCCL can do it:
//
//   base + its latency + S w / (share B)
//   w           what of S bytes every rank puts on the bus: (n - 1) / n for an all-gather or a reduce-scatter, twice that for
//               an all-reduce, 1 for a broadcast or a send
//   B           m = 1: node.rate (all-reduce: node.all_reduce_rate); else the least of node.rate and r * network.rate, since
//               every node sends and receives on r network interfaces at once
//   ring        latency (n - m) hops in nodes and m - 1 between them; an all-reduce goes round twice. share 1
//   tree        all-reduce, m > 1: 2 ((r - 1) hops in a node + log2 m between nodes), share 0.78. On two nodes every byte
//               crosses once: B is up to 2 r * network.rate, and the share 0.92 where the node has an all_reduce_rate of its own
//   PAT         all-gather and reduce-scatter with one rank per node: log2 m / 3.5 hops + 2.8 us n, share 0.75
//   all-to-all  of S bytes (n - r) / n leave the node, by network.rate, while (r - 1) / n go by node.rate; the slower one counts.
//               Peers are served eight at a time, a hop each
//   send-recv   one hop, at the rate of the link between the two
//
// Each in two protocols. Simple: base 8.4 us, hops as given, network.start once where m > 1 (but for a send). LL: base 6.6
// us, hops of 0.18 (node) and 0.32 (network) of the given ones, half of B, at most an eighth of node.rate where m > 1.
//
// Sources. The forms, the bases, 0.92, 0.78 = 0.92 * 0.85, 0.75, 3.5, 2.8 us, the shares of LL: NCCL's own model
// (src/graph/tuning.cc, 2.28; hops there: 3.4 us in a node). Rates and the network's hop and start are figures of the cluster.
// Good for: the order of magnitude of small messages. Against tables of three other machines, all-reduces over 2 and 4 nodes
// are between 5 % too fast and 25 % too slow from 256 MiB on, at 64 MiB up to 70 % too slow (tests/models/topology_test.cc).
// Leaves out: congestion (public all-reduces on 4 nodes and more vary by a factor of 3 and more), in-switch reduction between nodes, LL128,
// nodes with unequal numbers of ranks (their mean counts), rails.
//
// Links in flight together (LinkLoad): a collective loads the node's link with B / node.rate, the network's with
// B / (r * network.rate), each at most 1; so tensor parallelism in a node and data parallelism across nodes do not share.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/collective_table.h"
#include "models/costs.h"
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
  friend bool operator==(const NetworkLinks&, const NetworkLinks&) = default;
};

// Rank r lies on node r / node_ranks.
struct Topology {
  std::int64_t node_ranks = 1;
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
