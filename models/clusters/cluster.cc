// Chooses among a cluster's collective tables. Where a collective was not measured its table is derived
// from one that was, by the steps of the ring algorithm, interpolated between two worlds, or modelled
// from the links, and the sentence that says so travels along.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/cluster.h"

#include "base/error.h"
#include "models/rates/collective_anchor.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace dovetail::models {
namespace {

using schedule::Collective;

// Medians over worlds that were left out: tests/models/small_messages_test.cc, topology_fit.h.
constexpr std::string_view kAnchoredInNode = "8 ranks from 4 were so missed by 11 % in the median";
constexpr std::string_view kAnchoredOnNodes =
    "128 to 2,048 ranks from up to 64 were so missed by 11 % in the median, 10 to 31 % by setting";

// Without a topology nobody asks for nodes.
CollectiveKey key_of_series(const Cluster& cluster, Collective kind,
                            const CollectiveSeries& series) {
  if (!cluster.topology) return {kind, series.ranks};
  return key_of_neighbours(kind, series.ranks, series.nodes.value_or(0), *cluster.topology);
}

const CollectiveSeries* measured(const Cluster& cluster, CollectiveKey key) {
  for (const CollectiveSeries& series : cluster.collectives) {
    if (key_of_series(cluster, series.collective, series) == key) return &series;
  }
  return nullptr;
}

// The links of a machine of which only this table is known: what its fastest message saw, and an interface of 10 us,
// about the middle of the shipped tables over several nodes.
Topology plain_topology(const CollectiveSeries& series, std::int64_t nodes) {
  const auto n = static_cast<double>(series.ranks);
  const std::int32_t crossings = schedule::traits_of(series.collective).crossings;
  const double crossed = crossings == 0 ? 1 : crossings * (n - 1) / n;
  double bus = 0;
  for (const CollectivePoint& point : std::get<std::vector<CollectivePoint>>(series.times)) {
    const double seconds = static_cast<double>(point.isolated.count()) / 1e9;
    bus = std::max(bus, crossed * static_cast<double>(point.bytes.count()) / seconds);
  }
  const std::int64_t per_node = series.ranks / nodes;
  return {
      .levels = {
          {.link = "nvlink", .ranks = per_node, .rate = BytesPerSecond(bus), .hop = from_us(3.4)},
          {.link = "network",
           .rate = BytesPerSecond(bus / static_cast<double>(per_node)),
           .hop = from_us(34),
           .ll128 = false}}};
}

// Below its first size a table of GPUs has the shape of NCCL's estimate.
CollectiveTable table_of(const Cluster& cluster, const CollectiveSeries& series) {
  if (const auto* line = std::get_if<AlphaBeta>(&series.times)) return CollectiveTable(*line);
  CollectiveTable table(std::get<std::vector<CollectivePoint>>(series.times));
  if (cluster.backend != BackendKind::Cuda || series.ranks < 2) return table;
  CollectiveKey key = key_of_series(cluster, series.collective, series);
  if (!cluster.topology) key.nodes = std::min(series.ranks, series.nodes.value_or(1));
  const Topology topology =
      cluster.topology ? *cluster.topology : plain_topology(series, key.nodes);
  return table.extended_below(modelled(topology, key).time);
}

// A table made of one or two measured ones, and the sentence that says so.
struct Derivation {
  const CollectiveSeries* first = nullptr;
  const CollectiveSeries* second = nullptr;  // added to the first where present
  double share = 1;                          // of the time
  double bytes = 1;                          // at this many times the bytes
  std::string sentence;
};

Derivation derive_all_reduce(const CollectiveSeries* scatter, const CollectiveSeries* gather) {
  if (scatter != nullptr && gather != nullptr) {
    return {scatter, gather, 1, 1, "taken as the reduce-scatter plus the all-gather"};
  }
  if (gather != nullptr) {
    return {gather, nullptr, 2, 1,
            "taken as twice the all-gather (the reduce-scatter assumed equal to it)"};
  }
  if (scatter != nullptr) {
    return {scatter, nullptr, 2, 1,
            "taken as twice the reduce-scatter (the all-gather assumed equal to it)"};
  }
  return {};
}

// Another collective over the same ranks.
CollectiveKey with(Collective kind, CollectiveKey key) {
  key.collective = kind;
  return key;
}

// Half of an all-reduce.
Derivation derive_half(const Cluster& cluster, CollectiveKey key) {
  const Collective twin =
      key.collective == Collective::AllGather ? Collective::ReduceScatter : Collective::AllGather;
  if (const CollectiveSeries* series = measured(cluster, with(twin, key))) {
    return {series, nullptr, 1, 1, "taken as equal to the " + std::string(to_string(twin))};
  }
  if (const CollectiveSeries* series = measured(cluster, with(Collective::AllReduce, key))) {
    return {series, nullptr, 0.5, 1, "taken as half of the all-reduce"};
  }
  return {};
}

Derivation derive(const Cluster& cluster, CollectiveKey key);

// The smallest group, of the pair itself if there is one, for which an all-reduce is known.
Derivation all_reduce_of_fewest(const Cluster& cluster, std::int64_t& ranks) {
  std::set<std::int64_t> known;
  for (const CollectiveSeries& series : cluster.collectives) known.insert(series.ranks);
  for (const std::int64_t count : known) {
    Derivation base = derive(cluster, {Collective::AllReduce, count});
    if (count < 2 || base.first == nullptr) continue;
    ranks = count;
    return base;
  }
  return {};
}

// From the steps of the all-reduce's ring.
Derivation derive_from_ring(const Cluster& cluster, CollectiveKey key) {
  std::int64_t ranks = key.ranks;
  Derivation base = derive(cluster, with(Collective::AllReduce, key));
  const schedule::CollectiveTraits& traits = schedule::traits_of(key.collective);
  if (base.first == nullptr && traits.pair && !cluster.topology) {
    base = all_reduce_of_fewest(cluster, ranks);
  }
  if (base.first == nullptr || ranks < 2) return {};
  const auto n = static_cast<double>(ranks);
  const std::string ring = "the all-reduce over " + std::to_string(ranks) + " ranks";
  if (traits.pair) {
    base.share /= 2 * (n - 1);
    base.bytes = n;
    base.sentence = "taken as one step of " + ring;
  } else if (traits.rooted()) {
    base.share /= 2;
    base.bytes = n / (n - 1);
    base.sentence = "taken as half of " + ring + " at " + std::to_string(ranks) + "/" +
                    std::to_string(ranks - 1) + " of the bytes";
  } else {
    base.share /= 2;
    base.sentence = "taken as half of " + ring;
  }
  return base;
}

Derivation derive(const Cluster& cluster, CollectiveKey key) {
  if (const CollectiveSeries* series = measured(cluster, key)) return {series, nullptr, 1, 1, ""};
  if (key.collective == Collective::AllReduce) {
    return derive_all_reduce(measured(cluster, with(Collective::ReduceScatter, key)),
                             measured(cluster, with(Collective::AllGather, key)));
  }
  const bool is_half = schedule::traits_of(key.collective).is_half();
  return is_half ? derive_half(cluster, key) : derive_from_ring(cluster, key);
}

CollectiveTable table_of(const Cluster& cluster, const Derivation& derivation) {
  CollectiveTable table = table_of(cluster, *derivation.first);
  if (derivation.second != nullptr) table = table + table_of(cluster, *derivation.second);
  if (derivation.bytes != 1) table = table.with_bytes_times(derivation.bytes);
  return derivation.share == 1 ? table : table.scaled(derivation.share);
}

CollectivePrice price_of(const Cluster& cluster, const Derivation& derivation,
                         const CollectiveKey& key) {
  CollectivePrice price{.time = table_of(cluster, derivation),
                        .loads = {{.link = derivation.first->link, .share = 1}},
                        .sources = {derivation.first}};
  if (derivation.second != nullptr) price.sources.push_back(derivation.second);
  if (!derivation.sentence.empty()) price.assumption = title_of(key) + " is " + derivation.sentence;
  return price;
}

// In one node, or with equally many ranks on each of several.
bool is_same_shape(const CollectiveKey& a, const CollectiveKey& b) {
  if (a.nodes == 1 || b.nodes == 1) return a.nodes == b.nodes;
  return a.ranks * b.nodes == b.ranks * a.nodes;
}

// Within the same level: one rack, several of one pod, ...
bool is_as_wide(const CollectiveKey& a, const CollectiveKey& b) {
  return std::ranges::equal(a.wider, b.wider, [](std::int64_t one, std::int64_t other) {
    return (one > 1) == (other > 1);
  });
}

// Between the nearest worlds of one shape, in proportion to the logarithm of the ranks.
std::optional<CollectivePrice> interpolated(const Cluster& cluster, const CollectiveKey& key) {
  std::optional<CollectiveKey> below;
  std::optional<CollectiveKey> above;
  for (const CollectiveSeries& series : cluster.collectives) {
    const CollectiveKey known = key_of_series(cluster, key.collective, series);
    const bool lies_alike = is_same_shape(known, key) && is_as_wide(known, key);
    if (!lies_alike || derive(cluster, known).first == nullptr) continue;
    if (known.ranks < key.ranks && (!below || known.ranks > below->ranks)) below = known;
    if (known.ranks > key.ranks && (!above || known.ranks < above->ranks)) above = known;
  }
  if (!below || !above || below->ranks < 2) return std::nullopt;
  const auto log_of = [](const CollectiveKey& one) {
    return std::log(static_cast<double>(one.ranks));
  };
  const double part = (log_of(key) - log_of(*below)) / (log_of(*above) - log_of(*below));
  CollectivePrice price = price_of(cluster, derive(cluster, *below), *below);
  const CollectivePrice far = price_of(cluster, derive(cluster, *above), *above);
  price.time = price.time.scaled(1 - part) + far.time.scaled(part);
  price.sources.insert(price.sources.end(), far.sources.begin(), far.sources.end());
  price.assumption = title_of(key) + " is interpolated between " + std::to_string(below->ranks) +
                     " and " + std::to_string(above->ranks) + " ranks";
  return price;
}

double log_distance(const CollectiveKey& a, const CollectiveKey& b) {
  return std::abs(std::log(static_cast<double>(a.ranks) / static_cast<double>(b.ranks)));
}

// The nearest worlds of its shape that were measured, whose tables move what is modelled (collective_anchor.h).
std::vector<CollectiveKey> worlds_near(const Cluster& cluster, const CollectiveKey& key) {
  std::vector<CollectiveKey> worlds;
  for (const CollectiveSeries& series : cluster.collectives) {
    const CollectiveKey known = key_of_series(cluster, key.collective, series);
    const bool is_special = known.nodes == 1 ? known.ranks <= 2 : known.nodes == 2;
    if (is_special || !is_same_shape(known, key) || derive(cluster, known).first == nullptr)
      continue;
    if (std::ranges::find(worlds, known) == worlds.end()) worlds.push_back(known);
  }
  std::ranges::stable_sort(worlds, {},
                           [&key](const CollectiveKey& known) { return log_distance(known, key); });
  worlds.resize(std::min<std::size_t>(worlds.size(), key.nodes == 1 ? 1 : 2));
  return worlds;
}

std::optional<CollectivePrice> price_as_it_is(const Cluster& cluster, const CollectiveKey& key);

// What of it lies in one node, if that is more than a rank and the collective is one whose time grows with the ranks.
std::optional<CollectivePrice> part_in_node(const Cluster& cluster, const CollectiveKey& key) {
  const schedule::CollectiveTraits& traits = schedule::traits_of(key.collective);
  const std::int64_t per_node = key.nodes > 1 ? key.ranks / key.nodes : 1;
  if (per_node < 2 || traits.pair || key.collective == Collective::AllToAll) return std::nullopt;
  return price_as_it_is(cluster, key_of_neighbours(key.collective, per_node, 1, *cluster.topology));
}

CollectivePrice modelled_price(const Cluster& cluster, const CollectiveKey& key) {
  const Topology& topology = *cluster.topology;
  ModelledCollective model = modelled(topology, key);
  CollectivePrice price{.time = std::move(model.time),
                        .loads = std::move(model.loads),
                        .assumption = title_of(key) + " is modelled from the links",
                        .is_modelled = true};
  std::vector<Anchor> anchors;
  std::string ranks;
  for (const CollectiveKey& known : worlds_near(cluster, key)) {
    const CollectivePrice measured = price_of(cluster, derive(cluster, known), known);
    anchors.push_back({measured.time, modelled(topology, known).time});
    price.sources.insert(price.sources.end(), measured.sources.begin(), measured.sources.end());
    ranks += (ranks.empty() ? "" : " and ") + std::to_string(known.ranks);
  }
  if (!anchors.empty()) {
    price.time = anchored(price.time, anchors);
    if (anchors.size() == 1) price.time = without_falls(price.time);
    price.assumption += ", anchored to tables over " + ranks + " ranks: " +
                        std::string(key.nodes == 1 ? kAnchoredInNode : kAnchoredOnNodes);
  }
  if (const auto part = part_in_node(cluster, key)) price.time = slower_of(price.time, part->time);
  return price;
}

std::string ranks_with_tables(const Cluster& cluster) {
  std::set<std::int64_t> ranks;
  for (const CollectiveSeries& series : cluster.collectives) ranks.insert(series.ranks);
  std::string list;
  for (const std::int64_t count : ranks) list += (list.empty() ? "" : ", ") + std::to_string(count);
  return list;
}

}  // namespace

HostModel default_host(BackendKind backend) {
  HostModel host;
  if (backend == BackendKind::Cpu) {
    host.kind = HostModel::Kind::Inline;
    return host;
  }
  host.kind = HostModel::Kind::Async;
  host.run_op = from_us(6);
  host.collective = from_us(15);
  host.event = from_us(1.5);
  host.copy = from_us(8);
  host.launch_latency = from_us(7);
  host.launch_gap = from_us(1);
  return host;
}

namespace {

// REQUIRES: with a topology key.nodes > 0, without one 0.
std::optional<CollectivePrice> price_as_it_is(const Cluster& cluster, const CollectiveKey& key) {
  if (const Derivation derivation = derive(cluster, key); derivation.first != nullptr) {
    return price_of(cluster, derivation, key);
  }
  if (!cluster.topology || key.ranks < 2) return std::nullopt;
  if (std::optional<CollectivePrice> price = interpolated(cluster, key)) return price;
  return modelled_price(cluster, key);
}

Topology asked_of(Topology topology, const WhatIf& what_if) {
  const auto faster = [](BytesPerSecond rate, double factor) {
    return BytesPerSecond(rate.count() * factor);
  };
  for (Level& level : topology.levels) {
    const bool is_node = &level == &topology.levels.front();
    const double factor = is_node ? what_if.nvlink : what_if.network;
    level.rate = faster(level.rate, factor);
    if (auto& reduced = level.all_reduce_rate) reduced = faster(*reduced, factor);
  }
  return topology;
}

}  // namespace

std::optional<CollectivePrice> collective_price(const Cluster& cluster, CollectiveKey key) {
  if (!cluster.topology) {
    key.nodes = 0;
  } else if (key.nodes == 0 || key.wider.front() == 0) {
    key = key_of_neighbours(key.collective, key.ranks, key.nodes, *cluster.topology);
  }
  std::optional<CollectivePrice> price = price_as_it_is(cluster, key);
  if (!price || !cluster.topology || key.ranks < 2 || !cluster.what_if.changes_topology()) {
    return price;
  }
  const ModelledCollective asked = modelled(asked_of(*cluster.topology, cluster.what_if), key);
  const ModelledCollective now = modelled(*cluster.topology, key);
  if (asked.time == now.time) return price;  // bound by the other kind of link
  price->time = anchored(asked.time, {{.measured = price->time, .modelled = now.time}});
  if (price->is_modelled) price->loads = asked.loads;
  return price;
}

bool is_uncalibrated(const Cluster& cluster) {
  return cluster.compute.has_value() && cluster.kernels.empty();
}

CollectiveTable collective_table(const Cluster& cluster, CollectiveKey key) {
  if (std::optional<CollectivePrice> price = collective_price(cluster, key)) {
    return std::move(price->time);
  }
  const std::string known = ranks_with_tables(cluster);
  throw InputError(
      "cluster " + cluster.name + ": no table of " + title_of(key) + "; " +
      (known.empty() ? "it has no tables at all" : "it has tables for ranks: " + known) +
      "; docs/machines.md says how to bring one");
}

std::string collective_assumption(const Cluster& cluster, CollectiveKey key) {
  const std::optional<CollectivePrice> price = collective_price(cluster, key);
  return price ? price->assumption : "";
}

}  // namespace dovetail::models
