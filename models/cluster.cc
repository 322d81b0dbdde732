// Finding cluster files and choosing among a cluster's collective tables.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/cluster.h"

#include "base/error.h"
#include "base/file.h"

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
  double share = 1;
  std::string sentence;
};

Derivation derive_all_reduce(const CollectiveSeries* scatter, const CollectiveSeries* gather) {
  if (scatter != nullptr && gather != nullptr) {
    return {scatter, gather, 1, "taken as the reduce-scatter plus the all-gather"};
  }
  if (gather != nullptr) {
    return {gather, nullptr, 2,
            "taken as twice the all-gather (the reduce-scatter assumed equal to it)"};
  }
  if (scatter != nullptr) {
    return {scatter, nullptr, 2,
            "taken as twice the reduce-scatter (the all-gather assumed equal to it)"};
  }
  return {};
}

Derivation derive(const Cluster& cluster, CollectiveKey key) {
  const auto of = [&](Collective kind) { return measured(cluster, {kind, key.ranks}); };
  if (const CollectiveSeries* series = of(key.collective)) return {series, nullptr, 1, ""};
  if (key.collective == Collective::AllReduce) {
    return derive_all_reduce(of(Collective::ReduceScatter), of(Collective::AllGather));
  }
  const Collective twin =
      key.collective == Collective::AllGather ? Collective::ReduceScatter : Collective::AllGather;
  if (const CollectiveSeries* series = of(twin)) {
    return {series, nullptr, 1, "taken as equal to the " + std::string(to_string(twin))};
  }
  if (const CollectiveSeries* series = of(Collective::AllReduce)) {
    return {series, nullptr, 0.5, "taken as half of the all-reduce"};
  }
  return {};
}

std::string ranks_with_tables(const Cluster& cluster) {
  std::set<std::int64_t> ranks;
  for (const CollectiveSeries& series : cluster.collectives) ranks.insert(series.ranks);
  std::string list;
  for (const std::int64_t count : ranks) list += (list.empty() ? "" : ", ") + std::to_string(count);
  return list;
}

}  // namespace

std::string_view to_string(BackendKind backend) {
  return backend == BackendKind::Cuda ? "cuda" : "cpu";
}

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
        (known.empty() ? "it has no tables at all" : "it has tables for ranks: " + known));
  }
  CollectiveTable table = table_of(*derivation.first);
  if (derivation.second != nullptr) table = table + table_of(*derivation.second);
  return derivation.share == 1 ? table : table.scaled(derivation.share);
}

std::string collective_assumption(const Cluster& cluster, CollectiveKey key) {
  const Derivation derivation = derive(cluster, key);
  if (derivation.sentence.empty()) return "";
  return std::string(to_string(key.collective)) + " over " + std::to_string(key.ranks) +
         " ranks is " + derivation.sentence;
}

Cluster load_cluster(const std::string& name_or_path, const std::string& data_dir) {
  const bool is_path =
      name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
  if (is_path) return cluster_from_json(JsonFile(name_or_path).root());
  const std::vector<std::string> names = cluster_names(data_dir);
  if (std::ranges::find(names, name_or_path) == names.end()) {
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    const std::string near = nearest_word(name_or_path, names);
    throw InputError("cluster \"" + name_or_path + "\": no such cluster" +
                     (near.empty() ? "" : "; did you mean \"" + near + "\"?") +
                     (list.empty() ? "; there are none in " + data_dir : "; known: " + list));
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
