// Lays a measured table beside a shipped one, looks for dips along its sizes, and finds half of its peak.
//
// Half of the peak is looked for from the small sizes up: a dip further on does not move it.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/verdict.h"

#include "base/attempt.h"
#include "base/decimal.h"
#include "calibrate/logs/collective_log.h"
#include "calibrate/logs/gpus.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace dovetail::imports {
namespace {

using models::CollectivePoint;

const std::vector<CollectivePoint>& measured_points(const models::CollectiveSeries& series) {
  return std::get<std::vector<CollectivePoint>>(series.times);
}

double algorithm_rate(const CollectivePoint& point) {
  return algorithm_bandwidth(point.bytes, point.isolated);
}

Beside beside(double ratio) {
  if (ratio < 1 - kAlikeShare) return Beside::Slower;
  return ratio > 1 + kAlikeShare ? Beside::Faster : Beside::Alike;
}

std::string verdict_words(const SizeVerdict& verdict) {
  std::string words;
  if (verdict.other_gb_s) {
    const std::string change =
        fixed(100 * (verdict.bus_gb_s / *verdict.other_gb_s - 1), 0, "+") + " %";
    words = verdict.beside == Beside::Slower   ? "slower: " + change
            : verdict.beside == Beside::Faster ? "faster: " + change
                                               : change;
  }
  if (verdict.dips) words += words.empty() ? "dip" : ", dip";
  return words;
}

// A machine without a topology has tables for ranks on its own nodes only.
bool lies_alike(const models::Cluster& cluster, const models::CollectiveSeries& series) {
  if (cluster.topology || !series.nodes) return true;
  return std::ranges::all_of(cluster.collectives, [&](const models::CollectiveSeries& one) {
    return one.ranks != series.ranks || one.nodes.value_or(*series.nodes) == *series.nodes;
  });
}

double best_bus(const models::CollectiveSeries& series, Bytes from) {
  double best = 0;
  for (const CollectivePoint& point : measured_points(series)) {
    if (point.bytes >= from)
      best = std::max(best, bus_factor(series.collective, series.ranks) * algorithm_rate(point));
  }
  return best;
}

}  // namespace

std::optional<LineVerdict> line_verdict(const models::CollectiveSeries& series,
                                        const models::Cluster& other,
                                        std::span<const models::CollectiveSeries> own) {
  constexpr Bytes kLarge = mib(64);
  const std::int64_t nodes = series.nodes.value_or(1);
  const bool has_bus = schedule::traits_of(series.collective).crossings > 0;
  if (nodes < 2 || !other.topology || !has_bus) return std::nullopt;
  const models::Level& node = other.topology->node();
  const bool reduces = series.collective == schedule::Collective::AllReduce;
  LineVerdict found{.reached_gb_s = best_bus(series, kLarge),
                    .interface_gb_s = other.topology->levels.at(1).rate.count() / 1e9,
                    .per_node = series.ranks / nodes};
  if (found.reached_gb_s == 0 || found.per_node < 1) return std::nullopt;
  const bool crosses_once = reduces && nodes == 2;  // the bytes of a tree
  double in_node =
      (crosses_once ? node.all_reduce_rate.value_or(node.rate) : node.rate).count() / 1e9;
  for (const models::CollectiveSeries& one : own) {
    if (one.collective == series.collective && one.nodes == 1 && one.ranks == found.per_node)
      in_node = std::max(best_bus(one, kLarge), found.reached_gb_s);
  }
  found.line_gb_s =
      (crosses_once ? 2 : 1) * static_cast<double>(found.per_node) * found.interface_gb_s;
  if (found.per_node > 1) found.line_gb_s = std::min(found.line_gb_s, in_node);
  return found;
}

std::string in_words(const LineVerdict& verdict) {
  const bool is_half = verdict.share() > 0.4;
  return fixed(verdict.reached_gb_s, 0) + " of the " + fixed(verdict.line_gb_s, 0) + " GB/s that " +
         std::to_string(verdict.per_node) + " interfaces of " + fixed(verdict.interface_gb_s, 0) +
         " GB/s and the node carry: " +
         (is_half ? "half of the rails" : "a network that others share") +
         ", or interfaces of another rate?";
}

std::optional<models::Cluster> shipped_like(const std::string& gpu,
                                            const models::CollectiveSeries& series,
                                            const std::string& data_dir) {
  const std::optional<Gpu> known = find_gpu(gpu);
  if (!known) return std::nullopt;
  const std::string family(known->name.substr(0, known->name.find('-')));
  const std::string member = family + "x" + std::to_string(series.ranks);
  std::vector<std::string> names = models::cluster_names(data_dir);
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(member + "_"); });
  names.insert(names.begin(), member);
  const models::CollectiveKey key{series.collective, series.ranks, series.nodes.value_or(0)};
  std::optional<models::Cluster> modelled;
  for (const std::string& name : names) {
    if (!models::is_shipped_cluster(name, data_dir)) continue;
    // A family may have no machine of so many ranks.
    const auto cluster = attempt([&] { return models::load_cluster(name, data_dir); });
    if (!cluster || !lies_alike(*cluster.value, series)) continue;
    const auto price = models::collective_price(*cluster.value, key);
    if (!price) continue;
    if (price->assumption.empty()) return *cluster.value;
    if (!modelled) modelled = *cluster.value;
  }
  return modelled;
}

std::vector<SizeVerdict> verdicts(const models::CollectiveSeries& series,
                                  const models::Cluster* other) {
  std::optional<models::CollectiveTable> table;
  bool is_measured = false;
  if (other != nullptr) {
    const models::CollectiveKey key{series.collective, series.ranks, series.nodes.value_or(0)};
    table = models::collective_table(*other, key);
    is_measured = models::collective_assumption(*other, key).empty();
  }
  const double factor = bus_factor(series.collective, series.ranks);
  std::vector<SizeVerdict> all;
  double reached = 0;
  for (const CollectivePoint& point : measured_points(series)) {
    SizeVerdict verdict{.bus_gb_s = factor * algorithm_rate(point)};
    if (table) {
      verdict.other_gb_s =
          factor * algorithm_bandwidth(point.bytes, table->time(point.bytes).isolated);
      if (is_measured) verdict.beside = beside(verdict.bus_gb_s / *verdict.other_gb_s);
    }
    verdict.dips = verdict.bus_gb_s < kDipShare * reached;
    reached = std::max(reached, verdict.bus_gb_s);
    verdict.words = verdict_words(verdict);
    all.push_back(std::move(verdict));
  }
  return all;
}

std::optional<HalfBandwidth> half_bandwidth(const models::CollectiveSeries& series) {
  const std::vector<CollectivePoint>& points = measured_points(series);
  if (points.size() < 2) return std::nullopt;
  HalfBandwidth found;
  for (const CollectivePoint& point : points) {
    found.peak_gb_s = std::max(found.peak_gb_s, algorithm_rate(point));
  }
  constexpr double kRises = 1.1;
  found.still_rises =
      algorithm_rate(points.back()) > kRises * algorithm_rate(points[points.size() - 2]);
  const double half = found.peak_gb_s / 2;
  const auto there = std::ranges::find_if(
      points, [half](const CollectivePoint& point) { return algorithm_rate(point) >= half; });
  found.bytes = there->bytes;
  found.is_below = there == points.begin();
  if (found.is_below) return found;
  const CollectivePoint& before = *std::prev(there);
  const double share =
      (half - algorithm_rate(before)) / (algorithm_rate(*there) - algorithm_rate(before));
  const double log_size = std::lerp(std::log(static_cast<double>(before.bytes.count())),
                                    std::log(static_cast<double>(there->bytes.count())), share);
  found.bytes = Bytes(std::llround(std::exp(log_size)));
  return found;
}

std::string fusing_in_words(const models::CollectiveSeries& series) {
  const std::optional<HalfBandwidth> half = half_bandwidth(series);
  if (!half) return "";
  const std::string what = std::string(to_string(series.collective)) + " over " +
                           std::to_string(series.ranks) + " ranks has half of its " +
                           fixed(half->peak_gb_s, 1) + " GB/s (algbw)";
  const std::string rises =
      half->still_rises ? "; it still rises at the largest size, so its peak is higher" : "";
  if (half->is_below) {
    return "fuse above " + to_string(half->bytes) +
           " or less: at this size, the smallest measured, " + what + " already" + rises;
  }
  return "fuse above " + to_string(half->bytes) + " on this machine: from there on " + what + rises;
}

}  // namespace dovetail::imports
