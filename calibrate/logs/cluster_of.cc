// Makes a cluster file of a log of collectives, either alone or by replacing the measured range in
// the tables of a cluster that is known; each replaced range, and the step where old and new
// points meet, is reported.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/cluster_of.h"

#include "base/error.h"
#include "calibrate/logs/gpus.h"
#include "models/clusters/topology_fit.h"
#include "recordings/text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <variant>

namespace dovetail::imports {
namespace {

using models::Cluster;
using models::CollectivePoint;
using models::CollectiveSeries;
using Points = std::vector<CollectivePoint>;

constexpr std::string_view kAssumedHost =
    "medians of public profiler traces on V100 and A100; uncalibrated";
constexpr std::string_view kAssumedContention =
    "published mean over training on 4 GPUs, arXiv 2507.03114; uncalibrated";
constexpr double kAssumedSlowdown = 1.19;

std::string title_of(const CollectiveSeries& series) {
  return std::string(to_string(series.collective)) + " over " + std::to_string(series.ranks) +
         " ranks";
}

Points& points_of(CollectiveSeries& series) { return std::get<Points>(series.times); }

// A table's points; those of a line at every doubling from 1 KiB to 16 GiB.
Points points_of(const CollectiveSeries& series) {
  if (const auto* points = std::get_if<Points>(&series.times)) return *points;
  const auto& line = std::get<models::AlphaBeta>(series.times);
  Points points;
  for (Bytes bytes = kib(1); bytes <= gib(16); bytes = bytes * 2) {
    const double ns = line.ns_per_byte * static_cast<double>(bytes.count());
    const Duration time = line.alpha + from_ns(ns);
    if (time > Duration{}) points.push_back({.bytes = bytes, .isolated = time});
  }
  return points;
}

CollectiveSeries* find(Cluster& cluster, const CollectiveSeries& like) {
  for (CollectiveSeries& series : cluster.collectives) {
    if (series.collective == like.collective && series.ranks == like.ranks) return &series;
  }
  return nullptr;
}

// How far apart both are at one size that was measured.
std::string seam_at(const CollectiveSeries& series, const CollectivePoint& point,
                    const models::CollectiveTable& prior, const std::string& name) {
  const Duration before = prior.time(point.bytes).isolated;
  const double ratio =
      static_cast<double>(point.isolated.count()) / static_cast<double>(before.count());
  const std::string percent = std::to_string(std::llround(ratio * 100));
  return title_of(series) + " at " + to_string(point.bytes) + ": measured " +
         to_string(point.isolated) + ", " + percent + " % of " + name + "'s " + to_string(before);
}

// Puts the measured points into the prior's table and says what came of it.
void merge(CollectiveSeries& prior, CollectiveSeries measured, const std::string& name,
           ClusterResult& result) {
  const models::CollectiveTable table =
      std::holds_alternative<Points>(prior.times)
          ? models::CollectiveTable(std::get<Points>(prior.times))
          : models::CollectiveTable(std::get<models::AlphaBeta>(prior.times));
  Points& points = points_of(measured);
  const Bytes from = points.front().bytes;
  const Bytes to = points.back().bytes;
  Points merged;
  std::size_t below = 0;
  std::size_t above = 0;
  for (const CollectivePoint& point : points_of(std::as_const(prior))) {
    if (point.bytes < from) ++below;
    if (point.bytes > to) ++above;
    if (point.bytes < from || point.bytes > to) merged.push_back(point);
  }
  if (below > 0) result.seams.push_back(seam_at(measured, points.front(), table, name));
  if (above > 0) result.seams.push_back(seam_at(measured, points.back(), table, name));
  merged.insert(merged.end(), points.begin(), points.end());
  std::ranges::sort(merged, {}, &CollectivePoint::bytes);
  points = std::move(merged);
  std::string range =
      title_of(measured) + ": " + to_string(from) + " to " + to_string(to) + " measured";
  if (below + above > 0) {
    measured.measured = models::MeasuredRange{.from = from, .to = to, .prior = name};
    if (below > 0) range += "; from " + to_string(points.front().bytes) + " " + name + "'s";
    if (above > 0) range += "; up to " + to_string(points.back().bytes) + " " + name + "'s";
  }
  result.ranges.push_back(std::move(range));
  prior = std::move(measured);
}

// A table needs two sizes. What one with less is told as; "": it has them.
std::string lack_of_sizes(const CollectiveSeries& series) {
  const auto& points = std::get<Points>(series.times);
  if (points.size() >= 2) return "";
  return title_of(series) + ": one size only, " + to_string(points.front().bytes) +
         "; a table needs two: measure a range of sizes, or merge with --over CLUSTER";
}

void add_tables(const CollectiveLog& log, const ClusterOptions& options, ClusterResult& result) {
  const std::string origin = log.is_model ? ", a model" : " measured";
  for (CollectiveSeries& series : tables_of(log.samples)) {
    CollectiveSeries* const prior = find(result.cluster, series);
    if (prior != nullptr && log.is_model) {
      result.ranges.push_back(title_of(series) + ": " + options.prior->name +
                              "'s stays, which is not replaced by a model");
      continue;
    }
    if (prior != nullptr) {
      merge(*prior, std::move(series), options.prior->name, result);
      continue;
    }
    const std::string lack = lack_of_sizes(series);
    if (!lack.empty()) {
      result.missing.push_back(lack);
      continue;
    }
    const Points& points = points_of(series);
    result.ranges.push_back(title_of(series) + ": " + to_string(points.front().bytes) + " to " +
                            to_string(points.back().bytes) + origin);
    result.cluster.collectives.push_back(std::move(series));
  }
  if (result.cluster.collectives.empty()) {
    throw InputError(result.missing.empty() ? "no time of a collective" : result.missing.front());
  }
}

// The ranks that most samples have whose table is in the cluster; of equals the larger.
std::int64_t ranks_of(const CollectiveLog& log, const Cluster& cluster) {
  std::set<std::pair<schedule::Collective, std::int64_t>> kept;
  for (const CollectiveSeries& series : cluster.collectives) {
    kept.insert({series.collective, series.ranks});
  }
  std::map<std::int64_t, std::size_t> counts;
  for (const CollectiveSample& sample : log.samples) {
    if (kept.contains({sample.collective, sample.ranks})) ++counts[sample.ranks];
  }
  std::int64_t best = 1;
  std::size_t most = 0;
  for (const auto& [ranks, count] : counts) {
    if (count < most) continue;
    best = ranks;
    most = count;
  }
  return best;
}

// What a new cluster takes from lists, as the shipped ones do.
void assume_machine(const CollectiveLog& log, const ClusterOptions& options,
                    ClusterResult& result) {
  Cluster& cluster = result.cluster;
  cluster.host = models::default_host(cluster.backend);
  cluster.contention.compute_slowdown = kAssumedSlowdown;
  cluster.notes["host"] = kAssumedHost;
  cluster.notes["contention"] = kAssumedContention;
  const std::optional<Gpu> gpu = options.gpu.empty() ? find_gpu(log.gpu) : gpu_named(options.gpu);
  if (!gpu && !options.gpu.empty()) {
    throw InputError("--gpu \"" + options.gpu + "\": not known; known: " + listed(gpu_names()));
  }
  if (gpu) {
    cluster.compute = roofline_of(*gpu);
    const bool has_products = !cluster.compute->products.empty();
    cluster.notes["compute"] =
        std::string(has_products ? "public measurements of bf16 and f16 products, else " : "") +
        "vendor peak of " + std::string(gpu->name) + " times assumed efficiency; uncalibrated; " +
        std::string(gpu->f32_means);
    return;
  }
  result.missing.push_back(
      (log.gpu.empty() ? "the log names no GPU"
                       : "the GPU \"" + log.gpu + "\" is not in the list") +
      ": the file has collectives only; models of the zoo need --gpu NAME or --over CLUSTER here");
}

// The links between all ranks, fitted to the cluster's tables.
void add_topology(const CollectiveLog& log, std::int64_t node_ranks, ClusterResult& result) {
  for (const CollectiveSeries& series : result.cluster.collectives) {
    const std::int64_t fewest = models::nodes_of_neighbours(series.ranks, node_ranks);
    if (!series.nodes || *series.nodes >= fewest) continue;
    throw InputError("--node-ranks " + std::to_string(node_ranks) + ": " + title_of(series) +
                     " lay on " + std::to_string(*series.nodes) + " nodes, expected " +
                     std::to_string(fewest) + " at least");
  }
  result.cluster.topology = models::fit_topology(
      result.cluster.collectives, {.node_ranks = node_ranks, .gpu = nccl_gpu(log.gpu)});
  result.ranges.push_back("links for other numbers of ranks, fitted: " +
                          to_string(*result.cluster.topology));
}

}  // namespace

ClusterResult cluster_of(const CollectiveLog& log, const ClusterOptions& options) {
  ClusterResult result;
  Cluster& cluster = result.cluster;
  if (options.prior) cluster = *options.prior;
  const std::string prior_name = cluster.name;
  add_tables(log, options, result);
  if (options.node_ranks) add_topology(log, *options.node_ranks, result);
  cluster.ranks = ranks_of(log, cluster);
  cluster.name = options.name;
  if (cluster.name.empty()) {
    const char* const ending = log.is_model ? "-with-model" : "-measured";
    cluster.name = options.prior ? prior_name + ending : "imported";
  }
  const std::string source = options.origin + " (" + log.tool + library_in_words(log) + ")";
  std::string collectives;
  for (const std::string& range : result.ranges) {
    collectives += (collectives.empty() ? "" : "; ") + range;
  }
  cluster.notes["collectives"] = collectives + "; from " + source;
  if (!options.prior) {
    cluster.origin = source;
    if (!log.gpu.empty()) cluster.notes["system"] = log.gpu;
    assume_machine(log, options, result);
  } else {
    cluster.origin = source + " over " + prior_name +
                     (cluster.origin.empty() ? "" : ": " + options.prior->origin);
    cluster.licence.clear();
  }
  return result;
}

}  // namespace dovetail::imports
