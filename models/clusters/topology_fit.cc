// Rates by maxima, the hop by a search over a grid, scores by prices of a cluster that knows the small worlds only.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/topology_fit.h"

#include "base/error.h"
#include "base/statistics.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <variant>

namespace dovetail::models {
namespace {

using schedule::Collective;

// A table with what the fit asks of it.
struct World {
  CollectiveKey key;
  std::vector<CollectivePoint> points;

  [[nodiscard]] double bus_factor() const {
    const std::int32_t crossings = schedule::traits_of(key.collective).crossings;
    const auto n = static_cast<double>(key.ranks);
    return crossings == 0 ? 1 : crossings * (n - 1) / n;
  }
  // Bytes per second of a rank's bus.
  [[nodiscard]] double best_bus() const {
    double best = 0;
    for (const CollectivePoint& point : points) {
      const double seconds = to_us(point.isolated) / 1e6;
      best = std::max(best, bus_factor() * static_cast<double>(point.bytes.count()) / seconds);
    }
    return best;
  }
  [[nodiscard]] double per_node() const {
    return static_cast<double>(key.ranks) / static_cast<double>(key.nodes);
  }
};

std::vector<World> worlds_of(const std::vector<CollectiveSeries>& series, std::int64_t node_ranks) {
  std::vector<World> worlds;
  for (const CollectiveSeries& one : series) {
    const auto* points = std::get_if<std::vector<CollectivePoint>>(&one.times);
    const bool is_told =
        one.collective != Collective::AllToAll && one.collective != Collective::SendRecv;
    if (points == nullptr || points->size() < 2 || one.ranks < 2 || !is_told) continue;
    const std::int64_t nodes = one.nodes.value_or(nodes_of_neighbours(one.ranks, node_ranks));
    worlds.push_back({.key = {one.collective, one.ranks, nodes}, .points = *points});
  }
  return worlds;
}

// The best of worlds that `counts`, in `unit`; 0: there is none.
template <typename Counts, typename Unit>
double best_of(const std::vector<World>& worlds, Counts counts, Unit unit) {
  double best = 0;
  for (const World& world : worlds) {
    if (counts(world)) best = std::max(best, unit(world));
  }
  return best;
}

double log_ratio(const CollectiveTable& model, const CollectivePoint& point) {
  return std::log(to_us(model.time(point.bytes).isolated) / to_us(point.isolated));
}

// How far the growth of times from world to world is from the measured one; of one world, how far its level is.
double misfit(const Topology& topology, const std::vector<World>& worlds) {
  std::vector<std::map<Bytes, double>> errors;
  for (const World& world : worlds) {
    const CollectiveTable model = modelled(topology, world.key).time;
    auto& of_world = errors.emplace_back();
    for (const CollectivePoint& point : world.points)
      of_world[point.bytes] = log_ratio(model, point);
  }
  const auto counted = [](double error) { return std::min(1.0, std::abs(error)); };
  double grown = 0;
  double level = 0;
  bool has_pair = false;
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    for (const auto& [bytes, error] : errors[i]) level += counted(error);
    for (std::size_t j = 0; j < i; ++j) {
      if (worlds[i].key.collective != worlds[j].key.collective) continue;
      for (const auto& [bytes, error] : errors[i]) {
        const auto other = errors[j].find(bytes);
        if (other == errors[j].end()) continue;
        grown += counted(error - other->second);
        has_pair = true;
      }
    }
  }
  return has_pair ? grown : level;
}

Duration fitted_hop(Topology topology, const std::vector<World>& worlds) {
  constexpr double kLeastUs = 14;
  constexpr double kMostUs = 1000;
  constexpr double kStep = 1.05;
  double least = std::numeric_limits<double>::infinity();
  Duration best = from_us(kLeastUs);
  for (double us = kLeastUs; us < kMostUs; us *= kStep) {
    topology.levels.back().hop = from_us(us);
    const double found = misfit(topology, worlds);
    if (found >= least) continue;
    least = found;
    best = topology.levels.back().hop;
  }
  return best;
}

ErrorSummary summary_of(const std::vector<double>& errors) {
  std::vector<double> absolute;
  for (const double error : errors) absolute.push_back(std::abs(error));
  std::ranges::sort(absolute);
  const auto p95 = static_cast<std::size_t>(0.95 * static_cast<double>(absolute.size() - 1));
  return {.points = errors.size(),
          .median = median(errors),
          .median_absolute = median(absolute),
          .p95_absolute = absolute.at(p95)};
}

}  // namespace

Topology fit_topology(const std::vector<CollectiveSeries>& series, const FitLinks& options) {
  const std::vector<World> worlds = worlds_of(series, options.node_ranks);
  const auto in_node = [](bool reduces) {
    return [reduces](const World& world) {
      return world.key.nodes == 1 && (world.key.collective == Collective::AllReduce) == reduces;
    };
  };
  const auto bus = [](const World& world) { return world.best_bus(); };
  const auto interface = [](const World& world) { return world.best_bus() / world.per_node(); };
  const double reduced = best_of(worlds, in_node(true), bus);
  double node = best_of(worlds, in_node(false), bus);
  if (node == 0) node = reduced;
  if (node == 0)
    node = best_of(
        worlds, [](const World&) { return true; }, bus);
  double network = best_of(
      worlds, [](const World& world) { return world.key.nodes > 2; }, interface);
  if (network == 0) {
    network = best_of(
        worlds, [](const World& world) { return world.key.nodes == 2; },
        [&](const World& world) {
          return interface(world) / (world.key.collective == Collective::AllReduce ? 2 : 1);
        });
  }
  if (network == 0) {
    throw InputError("no table over several nodes, of " + std::to_string(options.node_ranks) +
                     " ranks each: links between nodes cannot be known");
  }
  Topology topology{.gpu = options.gpu,
                    .levels = {{.link = "nvlink",
                                .ranks = options.node_ranks,
                                .rate = BytesPerSecond(node),
                                .hop = NcclSystem{}.node_hop},
                               {.link = "network", .rate = BytesPerSecond(network)}}};
  constexpr double kHelped = 1.1;
  if (reduced > kHelped * node) topology.levels.front().all_reduce_rate = BytesPerSecond(reduced);
  std::vector<World> large;
  for (const std::int64_t more_than : {2, 1}) {
    if (!large.empty()) break;
    std::ranges::copy_if(worlds, std::back_inserter(large),
                         [&](const World& world) { return world.key.nodes > more_than; });
  }
  topology.levels.back().hop = fitted_hop(topology, large);
  return topology;
}

WorldScores score_worlds(const std::vector<CollectiveSeries>& series, const FitWorlds& options) {
  Cluster cluster;
  std::vector<CollectiveSeries> others;
  for (const CollectiveSeries& one : series) {
    (one.ranks <= options.fit_ranks ? cluster.collectives : others).push_back(one);
  }
  const std::string bound = std::to_string(options.fit_ranks) + " ranks";
  if (cluster.collectives.empty()) throw InputError("no table over up to " + bound + ", to fit to");
  WorldScores scores{.topology = fit_topology(cluster.collectives, options.links)};
  cluster.topology = scores.topology;
  std::vector<double> all;
  std::map<Bytes, std::vector<double>> by_size;
  for (const World& world : worlds_of(others, options.links.node_ranks)) {
    const CollectiveTable table = collective_table(cluster, world.key);
    std::vector<double> errors;
    for (const CollectivePoint& point : world.points) {
      errors.push_back(std::exp(log_ratio(table, point)) - 1);
      const int octave = std::ilogb(static_cast<double>(point.bytes.count()));
      by_size[Bytes(std::int64_t{1} << (octave / 4 * 4))].push_back(errors.back());
    }
    scores.worlds[world.key] = summary_of(errors);
    all.insert(all.end(), errors.begin(), errors.end());
  }
  if (all.empty()) throw InputError("no table over more than " + bound + ", to predict");
  for (const auto& [from, errors] : by_size) scores.sizes[from] = summary_of(errors);
  scores.all = summary_of(all);
  return scores;
}

}  // namespace dovetail::models
