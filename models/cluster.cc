// Finds cluster files by name, and chooses among a cluster's collective tables. Where a collective
// was not measured its table is derived from one that was, by the steps of the ring algorithm, and
// the sentence that says so travels along.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/cluster.h"

#include "base/error.h"
#include "base/file.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

namespace dovetail::models {
namespace {

using schedule::Collective;

const CollectiveSeries* measured(const Cluster& cluster, CollectiveKey key) {
  for (const CollectiveSeries& series : cluster.collectives) {
    if (series.collective == key.collective && series.ranks == key.ranks) return &series;
  }
  return nullptr;
}

CollectiveTable table_of(const CollectiveSeries& series) {
  if (const auto* line = std::get_if<AlphaBeta>(&series.times)) return CollectiveTable(*line);
  return CollectiveTable(std::get<std::vector<CollectivePoint>>(series.times));
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

// Half of an all-reduce.
Derivation derive_half(const Cluster& cluster, CollectiveKey key) {
  const Collective twin =
      key.collective == Collective::AllGather ? Collective::ReduceScatter : Collective::AllGather;
  if (const CollectiveSeries* series = measured(cluster, {twin, key.ranks})) {
    return {series, nullptr, 1, 1, "taken as equal to the " + std::string(to_string(twin))};
  }
  if (const CollectiveSeries* series = measured(cluster, {Collective::AllReduce, key.ranks})) {
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
  Derivation base = derive(cluster, {Collective::AllReduce, key.ranks});
  const schedule::CollectiveTraits& traits = schedule::traits_of(key.collective);
  if (base.first == nullptr && traits.pair) base = all_reduce_of_fewest(cluster, ranks);
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
    return derive_all_reduce(measured(cluster, {Collective::ReduceScatter, key.ranks}),
                             measured(cluster, {Collective::AllGather, key.ranks}));
  }
  const bool is_half = schedule::traits_of(key.collective).is_half();
  return is_half ? derive_half(cluster, key) : derive_from_ring(cluster, key);
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

CollectiveTable collective_table(const Cluster& cluster, CollectiveKey key) {
  const Derivation derivation = derive(cluster, key);
  if (derivation.first == nullptr) {
    const std::string known = ranks_with_tables(cluster);
    throw InputError(
        "cluster " + cluster.name + ": no table of " + std::string(to_string(key.collective)) +
        " over " + std::to_string(key.ranks) + " ranks; " +
        (known.empty() ? "it has no tables at all" : "it has tables for ranks: " + known) +
        "; docs/machines.md says how to bring one");
  }
  CollectiveTable table = table_of(*derivation.first);
  if (derivation.second != nullptr) table = table + table_of(*derivation.second);
  if (derivation.bytes != 1) table = table.with_bytes_times(derivation.bytes);
  return derivation.share == 1 ? table : table.scaled(derivation.share);
}

std::vector<const CollectiveSeries*> collective_sources(const Cluster& cluster, CollectiveKey key) {
  const Derivation derivation = derive(cluster, key);
  std::vector<const CollectiveSeries*> sources = {derivation.first, derivation.second};
  std::erase(sources, nullptr);
  return sources;
}

bool has_collective_table(const Cluster& cluster, CollectiveKey key) {
  return !collective_sources(cluster, key).empty();
}

std::string collective_assumption(const Cluster& cluster, CollectiveKey key) {
  const Derivation derivation = derive(cluster, key);
  if (derivation.sentence.empty()) return "";
  return std::string(to_string(key.collective)) + " over " + std::to_string(key.ranks) +
         " ranks is " + derivation.sentence;
}

namespace {

// "h100" of "h100x8": letters, then digits, then an x.
std::string gpu_of(std::string_view name) {
  const std::size_t digits = name.find_first_of("0123456789");
  if (digits == std::string_view::npos) return {};
  const std::size_t end = name.find_first_not_of("0123456789", digits);
  const bool is_counted = end != std::string_view::npos && name[end] == 'x';
  return is_counted ? std::string(name.substr(0, end + 1)) : std::string();
}

// What could be meant by a name that no cluster has: one of the same GPU, else the nearest.
std::string advice(const std::string& name, const std::vector<std::string>& names,
                   const std::string& data_dir) {
  if (names.empty()) return "; there are none in " + data_dir;
  std::string list;
  std::string alike;
  std::vector<std::string> same;
  const std::string gpu = gpu_of(name);
  for (const std::string& known : names) {
    list += (list.empty() ? "" : ", ") + known;
    if (gpu.empty() || !known.starts_with(gpu)) continue;
    same.push_back(known);
    alike += (alike.empty() ? "" : ", ") + known;
  }
  const std::string near = nearest_word(name, same.empty() ? names : same);
  std::string text;
  if (!near.empty()) {
    text = "; did you mean \"" + near + "\"?";
  } else if (!alike.empty()) {
    text = "; with this GPU there are " + alike;
  }
  return text + "; known: " + list +
         "; one of your own is a file: dovetail import nccl-tests LOG, or dovetail calibrate";
}

}  // namespace

Cluster load_cluster(const std::string& name_or_path, const std::string& data_dir) {
  const bool is_path =
      name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  if (is_path) return cluster_from_json(JsonFile(name_or_path).root());
  const std::vector<std::string> names = cluster_names(data_dir);
  if (std::ranges::find(names, name_or_path) == names.end()) {
    if (std::filesystem::is_regular_file(name_or_path)) {
      return cluster_from_json(JsonFile(name_or_path).root());
    }
    throw InputError("cluster \"" + name_or_path + "\": no such cluster" +
                     advice(name_or_path, names, data_dir));
  }
  const auto path = std::filesystem::path(data_dir) / (name_or_path + ".json");
  return cluster_from_json(JsonFile(path.string()).root());
}

std::vector<std::string> cluster_names(const std::string& data_dir) {
  std::vector<std::string> names;
  std::error_code unreadable;  // an absent directory holds no clusters
  for (const auto& entry : std::filesystem::directory_iterator(data_dir, unreadable)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace dovetail::models
