// Joins the tables of two clusters by collective and ranks. A table that is a formula has no sizes of its own: it is taken at
// powers of four.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/cluster_difference.h"

#include "schedule/collective_traits.h"

#include <algorithm>
#include <iterator>

namespace dovetail::models {
namespace {

std::vector<Bytes> sizes_of(const CollectiveSeries& series) {
  std::vector<Bytes> sizes;
  if (const auto* const points = std::get_if<std::vector<CollectivePoint>>(&series.times)) {
    for (const CollectivePoint& point : *points) sizes.push_back(point.bytes);
    return sizes;
  }
  for (std::int64_t bytes = std::int64_t{1} << 12; bytes <= std::int64_t{1} << 30; bytes *= 4) {
    sizes.emplace_back(bytes);
  }
  return sizes;
}

// Sizes of either, as far as both go.
std::vector<Bytes> shared_sizes(const CollectiveSeries& first, const CollectiveSeries& second) {
  const std::vector<Bytes> one = sizes_of(first);
  const std::vector<Bytes> other = sizes_of(second);
  std::vector<Bytes> sizes;
  std::ranges::set_union(one, other, std::back_inserter(sizes));
  if (one.empty() || other.empty()) return {};
  const Bytes low = std::max(one.front(), other.front());
  const Bytes high = std::min(one.back(), other.back());
  std::erase_if(sizes, [&](Bytes size) { return size < low || size > high; });
  return sizes;
}

const CollectiveSeries* series_like(const Cluster& cluster, const CollectiveSeries& like) {
  for (const CollectiveSeries& series : cluster.collectives) {
    if (series.collective == like.collective && series.ranks == like.ranks) return &series;
  }
  return nullptr;
}

double bus_gb_s(const CollectiveSeries& series, const CollectiveTable& table, Bytes bytes) {
  const double rate =
      static_cast<double>(bytes.count()) / static_cast<double>(table.time(bytes).isolated.count());
  return rate * schedule::bus_factor(series.collective, series.ranks);
}

CollectiveTable priced_table(const Cluster& cluster, const CollectiveSeries& series) {
  return collective_table(cluster, {series.collective, series.ranks, series.nodes.value_or(0)});
}

}  // namespace

std::vector<ClusterRow> rows_of_both(const Cluster& first, const Cluster& second) {
  std::vector<ClusterRow> rows;
  for (const CollectiveSeries& one : first.collectives) {
    const CollectiveSeries* const other = series_like(second, one);
    if (other == nullptr || series_like(first, one) != &one) continue;
    const CollectiveTable before = priced_table(first, one);
    const CollectiveTable after = priced_table(second, *other);
    for (const Bytes bytes : shared_sizes(one, *other)) {
      rows.push_back({.collective = one.collective,
                      .ranks = one.ranks,
                      .bytes = bytes,
                      .first_gb_s = bus_gb_s(one, before, bytes),
                      .second_gb_s = bus_gb_s(*other, after, bytes)});
    }
  }
  return rows;
}

std::vector<std::string> only_in(const Cluster& one, const Cluster& other) {
  std::vector<std::string> names;
  for (const CollectiveSeries& series : one.collectives) {
    if (series_like(other, series) != nullptr) continue;
    names.push_back(std::string(to_string(series.collective)) + " over " +
                    std::to_string(series.ranks) + " ranks");
  }
  return names;
}

}  // namespace dovetail::models
