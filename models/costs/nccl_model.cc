// Rate and latency of each algorithm in each protocol. In bytes per microsecond and microseconds.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/costs/nccl_model.h"

#include "base/error.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace dovetail::models {
namespace {

using schedule::Collective;
using ByProtocol = std::array<double, 3>;  // LL, LL128, Simple
using ByNodes = std::array<double, 3>;     // one, two, more
using ByAlgorithm = std::array<ByProtocol, 5>;
using ByGpu = std::array<ByNodes, 4>;

// Microseconds: what each way costs at least, a hop in a node (NVLink), and one between nodes.
constexpr ByAlgorithm kBase = {{{6.6, 14, 8.4}, {6.8, 14, 8.4}, {}, {}, {8, 8, 8}}};
constexpr ByAlgorithm kNodeHop = {
    {{.6, 1.9, 3.4}, {.6, 1.25, 4}, {0, 0, 25}, {0, 0, 25}, {0, 0, 4}}};
constexpr ByAlgorithm kNetworkHop = {
    {{2.7, 4, 14}, {5, 8.5, 14}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 14}}};
constexpr double kRingHopUs = kNodeHop[0][2];

// GB/s. The first: of the bus; in one node by GPU, else by processors (the first two rows, the second of AMD). The others:
// per channel.
constexpr ByGpu kLlMost = {{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr ByGpu kRingLl128Most = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
constexpr ByGpu kTreeLl128Most = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr ByGpu kTreeMost = {
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr ByGpu kNvlsTreeMost = {
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 43.8}}};

// Of a tree's rate, from 64 bytes on for each doubling.
constexpr std::array<std::array<double, 23>, 3> kTreeCorrection = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}};
constexpr double kRingPlateau = 1.4;  // of a ring's latency between nodes, from Ampere on
constexpr double kRingPlateauOnVolta = 1.9;
constexpr double kPlateauBytes = 64;  // for each channel and rank, from which it counts

double bytes_per_us(BytesPerSecond rate) { return rate.count() / 1e6; }

template <typename Enum>
std::size_t index_of(Enum value) {
  return static_cast<std::size_t>(value);
}

class Estimate {
 public:
  Estimate(const NcclSystem& system, const CollectiveKey& key)
      : system_(system),
        ranks_(static_cast<double>(key.ranks)),
        nodes_(static_cast<double>(key.nodes)),
        per_node_(ranks_ / nodes_),
        reduces_(key.collective == Collective::AllReduce),
        broadcasts_(key.collective == Collective::Broadcast),
        gpu_(index_of(system.gpu)),
        column_(static_cast<std::size_t>(std::min<std::int64_t>(key.nodes, 3) - 1)) {}

  // NCCL's defaults, without CollNet.
  [[nodiscard]] bool can(NcclAlgorithm algorithm, NcclProtocol protocol) const {
    using enum NcclAlgorithm;
    const bool is_simple = protocol == NcclProtocol::Simple;
    if (protocol == NcclProtocol::Ll128 && !in_one_node() && !system_.ll128_between_nodes)
      return false;
    switch (algorithm) {
      case Ring:
        return true;
      case Tree:
        return reduces_;
      case Nvls:
        return is_simple && reduces_ && has_nvls() && in_one_node();
      case NvlsTree:
        return is_simple && reduces_ && has_nvls() && !in_one_node() &&
               nodes_ <= static_cast<double>(system_.nvls_tree_nodes);
      case Pat:
        return is_simple && !reduces_ && !broadcasts_ && nodes_ == ranks_;
    }
    return false;
  }

  // As NCCL has it.
  [[nodiscard]] double us(NcclAlgorithm algorithm, NcclProtocol protocol, double bytes) const {
    double rate = bus(algorithm, protocol) * messages_per_bus(algorithm);
    if (algorithm == NcclAlgorithm::Tree && bytes >= 64) {
      const auto doublings = static_cast<std::size_t>(std::log2(bytes / 64));
      const auto& corrections = kTreeCorrection.at(index_of(protocol));
      if (doublings < corrections.size()) rate *= corrections.at(doublings);
    }
    return latency(algorithm, protocol, bytes) + bytes / rate;
  }

  // What NCCL does not know of the network, and so does not choose by.
  [[nodiscard]] double beyond_us(NcclAlgorithm algorithm, NcclProtocol protocol,
                                 double bytes) const {
    if (protocol != NcclProtocol::Simple || in_one_node()) return 0;
    double us = to_us(system_.network_start);
    if (algorithm == NcclAlgorithm::Ring) {
      // Blocks follow each other at every link, one a step.
      const double blocks = steps() * to_us(system_.network_block);
      us += std::max(0.0, blocks - latency(algorithm, protocol, bytes));
    }
    return us;
  }

 private:
  [[nodiscard]] bool in_one_node() const { return nodes_ <= 1; }
  [[nodiscard]] bool has_nvls() const { return system_.nvls_rate && per_node_ > 2; }
  [[nodiscard]] double steps() const {
    return reduces_ ? 2 * (ranks_ - 1) : broadcasts_ ? ranks_ : ranks_ - 1;
  }
  [[nodiscard]] double network() const { return per_node_ * bytes_per_us(system_.network_rate); }
  [[nodiscard]] double channel_limit(const ByGpu& limits, double channels) const {
    return 1e3 * channels * limits.at(gpu_).at(column_);
  }

  // Bytes per microsecond on a rank's bus.
  [[nodiscard]] double bus(NcclAlgorithm algorithm, NcclProtocol protocol) const {
    using enum NcclAlgorithm;
    const bool crosses_once = column_ == 1;  // of two nodes: a tree's bytes
    const double node = bytes_per_us(system_.node_rate);
    const std::size_t row = in_one_node() ? gpu_ : system_.amd_processors ? 1 : 0;
    const double most_ll = 1e3 * kLlMost.at(row).at(column_);
    switch (algorithm) {
      case Ring: {
        const double all = in_one_node() ? node : std::min(node, network());
        if (protocol == NcclProtocol::Ll) return std::min(most_ll, all / 2);
        if (protocol == NcclProtocol::Simple) return all;
        return std::min(.92 * all, channel_limit(kRingLl128Most, system_.channels));
      }
      case Tree: {
        double all = in_one_node() ? node : std::min(node, (crosses_once ? 2 : 1) * network());
        all = std::min(.92 * all, channel_limit(kTreeMost, system_.channels));
        if (protocol == NcclProtocol::Ll) all = std::min(all / 3.8, most_ll);
        if (protocol == NcclProtocol::Ll128) {
          all = std::min(all * (in_one_node() ? 7.0 / 9 : 120.0 / 128),
                         channel_limit(kTreeLl128Most, system_.channels));
        }
        return .85 * all;
      }
      case Nvls:
        return bytes_per_us(*system_.nvls_rate);
      case NvlsTree:
        return std::min({bytes_per_us(*system_.nvls_rate), (crosses_once ? 2 : 1) * network(),
                         channel_limit(kNvlsTreeMost, system_.nvls_channels)});
      case Pat:
        return .75 * std::min(node, network());
    }
    return 0;
  }

  // How many messages' bytes pass while one message's bytes pass each bus.
  [[nodiscard]] double messages_per_bus(NcclAlgorithm algorithm) const {
    if (algorithm == NcclAlgorithm::Tree) return .5;
    return broadcasts_ || algorithm == NcclAlgorithm::Pat ? 1 : ranks_ / steps();
  }

  [[nodiscard]] double latency(NcclAlgorithm algorithm, NcclProtocol protocol, double bytes) const {
    using enum NcclAlgorithm;
    const std::size_t a = index_of(algorithm);
    const std::size_t p = index_of(protocol);
    const bool is_simple = protocol == NcclProtocol::Simple;
    const double of_interface =
        to_us(algorithm == Ring ? system_.ring_interface : system_.tree_interface) *
        (is_simple ? 2 : 1);
    const std::size_t hop_of = per_node_ == 1 ? index_of(Tree) : a;  // nothing hides it then
    const double outside = kNetworkHop.at(hop_of).at(p) + of_interface;
    double inside = kNodeHop.at(a).at(p) * to_us(system_.node_hop) / kRingHopUs;
    const double doublings = std::floor(std::log2(nodes_));
    double us = kBase.at(a).at(p);
    switch (algorithm) {
      case Ring: {
        const double post =
            in_one_node() ? 0 : (system_.amd_processors ? 2 : 1) * (is_simple ? 3 : 1);
        inside = std::max(inside, post);
        const double between = (reduces_ ? 2 : 1) * (nodes_ - 1);
        us += (steps() - between) * inside + between * outside;
        const bool on_plateau = is_simple && reduces_ && !in_one_node() &&
                                bytes / (system_.channels * ranks_) >= kPlateauBytes;
        if (!on_plateau) return us;
        return us * (system_.gpu == NcclGpu::Volta ? kRingPlateauOnVolta : kRingPlateau);
      }
      case Tree:
        return us + 2 * ((std::floor(per_node_) - 1) * inside + doublings * outside);
      case Nvls:
        return us + inside;
      case NvlsTree:
        return us + inside + 2 * doublings * outside;
      case Pat:
        return us + doublings * outside / 3.5 + 2.8 * ranks_;
    }
    return us;
  }

  const NcclSystem& system_;
  double ranks_, nodes_, per_node_;
  bool reduces_, broadcasts_;
  std::size_t gpu_, column_;
};

// Of each algorithm the protocol that NCCL takes for the quickest; of those the one that is.
NcclChoice choice(const Estimate& estimate, double bytes) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  NcclChoice best{.us = kNever};
  for (const NcclAlgorithm algorithm : kAllOf<NcclAlgorithm>) {
    NcclChoice one{.algorithm = algorithm, .us = kNever};
    for (const NcclProtocol protocol : kAllOf<NcclProtocol>) {
      if (!estimate.can(algorithm, protocol)) continue;
      const double us = estimate.us(algorithm, protocol, bytes);
      if (us < one.us) one = {.algorithm = algorithm, .protocol = protocol, .us = us};
    }
    if (one.us < kNever) one.us += estimate.beyond_us(one.algorithm, one.protocol, bytes);
    if (one.us < best.us) best = one;
  }
  return best;
}

void check_key(const CollectiveKey& key) {
  DOVETAIL_CHECK(key.ranks >= 2 && key.nodes >= 1 && key.nodes <= key.ranks) << title_of(key);
  DOVETAIL_CHECK(key.collective != Collective::AllToAll && key.collective != Collective::SendRecv)
      << title_of(key);
}

}  // namespace

NcclChoice nccl_choice(const NcclSystem& system, const CollectiveKey& key, Bytes bytes) {
  check_key(key);
  return choice(Estimate(system, key), static_cast<double>(bytes.count()));
}

CollectiveTable nccl_curve(const NcclSystem& system, const CollectiveKey& key) {
  check_key(key);
  const Estimate estimate(system, key);
  constexpr double kFirst = 64;
  constexpr double kLast = 0x1p34;
  std::vector<CollectiveTable::Knot> knots;
  double ns = 0;
  for (double bytes = 0; bytes <= kLast; bytes = std::max(kFirst, 2 * bytes)) {
    ns = std::max(ns, 1e3 * std::min(to_us(kLongestTime), choice(estimate, bytes).us));
    if (!knots.empty()) {
      CollectiveTable::Knot& before = knots.back();
      before.isolated_slope = before.back_to_back_slope =
          (ns - before.isolated_ns) / (bytes - before.bytes);
    }
    knots.push_back({.bytes = bytes, .isolated_ns = ns, .back_to_back_ns = ns});
  }
  const CollectiveTable::Knot& before = knots.at(knots.size() - 2);
  knots.back().isolated_slope = knots.back().back_to_back_slope = before.isolated_slope;
  return CollectiveTable(std::move(knots));
}

}  // namespace dovetail::models
