// NCCL's own estimate of what a collective takes, by which it chooses algorithm and protocol.
//
//   NcclSystem system{.gpu = NcclGpu::Hopper, .node_rate = BytesPerSecond(3.6e11), .network_rate = BytesPerSecond(4.8e10)};
//   nccl_choice(system, {Collective::AllReduce, 24, 3}, kib(4))       tree, LL, 25.8749 us
//   nccl_curve(system, {Collective::AllReduce, 24, 3})                the least of all ways as a table
//
// n ranks on N nodes, r = n / N on each. A way takes   latency + S / rate   of S bytes.
//   bus rate   ring, tree: N = 1: node_rate; else the least of node_rate and r * network_rate, of a tree on two nodes twice the latter.
//              NVLS: nvls_rate; across nodes (NVLS tree) at most r * network_rate, on two nodes twice that.
//              LL has a half of that (tree 1 / 3.8) up to a limit of the GPU (one node) or the processors (several); LL128 0.92
//              (tree 120/128, in one node 7/9); trees 0.92 * 0.85; PAT 0.75; per channel a limit of the GPU.
//   rate       an all-reduce moves 2 (n - 1) / n of S on each bus by ring and NVLS, 2 by tree; the others (n - 1) / n
//   latency    a base, and hops: ring n - N in nodes and N - 1 between them (all-reduce: twice), tree 2 (r - 1) and
//              2 log2 N. Each by algorithm and protocol; between nodes 14 us and twice the interface's latency in Simple
//   tree       its rate is corrected by size, down to 0.4 at 512 KiB in LL
//
// Source: src/graph/tuning.cc of NCCL 2.28.9 (its constants are kept here; 2.30 differs in two limits of Blackwell); checked
// against the log in NVIDIA/nccl#1453, 3 nodes of 8 H100: 25.8749 us for 4 KiB, 26.5498 for 8 KiB.
// Left out: CollNet, PCI in nodes, several collectives in one launch, broadcasts whose rings share channels.
// How good it is: models/costs/topology.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "base/words.h"
#include "models/costs/costs.h"
#include "models/rates/collective_table.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace dovetail::models {

using dovetail::to_string;

enum class NcclAlgorithm { Ring, Tree, Nvls, NvlsTree, Pat };
constexpr auto words_of(NcclAlgorithm) { return words("ring", "tree", "nvls", "nvls-tree", "pat"); }
enum class NcclProtocol { Ll, Ll128, Simple };
constexpr auto words_of(NcclProtocol) { return words("LL", "LL128", "Simple"); }
enum class NcclGpu { Volta, Ampere, Hopper, Blackwell };
constexpr auto words_of(NcclGpu) { return words("volta", "ampere", "hopper", "blackwell"); }

// Rates are what large messages see of a rank's bus, in one direction.
struct NcclSystem {
  NcclGpu gpu = NcclGpu::Hopper;
  double channels = 24;
  double nvls_channels = 16;
  BytesPerSecond node_rate;
  std::optional<BytesPerSecond> nvls_rate = {};        // absent: switches do not reduce
  BytesPerSecond network_rate;                         // of each rank's interface
  Duration node_hop = std::chrono::nanoseconds(3400);  // of a ring in Simple; others in proportion
  Duration ring_interface{},
      tree_interface{};      // latency of an interface, on the hops of a ring, of a tree
  Duration network_start{};  // of Simple between nodes, once; NCCL has none
  Duration
      network_block{};  // of each block that a ring in Simple sends between nodes; NCCL has none
  bool amd_processors = false;
  bool ll128_between_nodes = true;
  std::int64_t nvls_tree_nodes = std::numeric_limits<std::int64_t>::max();  // at most so many
};

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::Ring;
  NcclProtocol protocol = NcclProtocol::Ll;
  double us = 0;
};

// REQUIRES: an all-reduce, reduce-scatter, all-gather or broadcast; 2 <= ranks, 1 <= nodes <= ranks; bytes >= 0.
NcclChoice nccl_choice(const NcclSystem& system, const CollectiveKey& key, Bytes bytes);

// From 0 bytes on, by powers of two; where NCCL's corrections make more bytes cheaper it is flat.
CollectiveTable nccl_curve(const NcclSystem& system, const CollectiveKey& key);

}  // namespace dovetail::models
