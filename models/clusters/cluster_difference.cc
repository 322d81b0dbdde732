// Joins the tables of two clusters by collective and ranks. A table that is a formula has no sizes of its own: it is taken at
// powers of four.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/cluster_difference.h"

#include "base/attempt.h"
#include "schedule/collective_traits.h"

#include <algorithm>
#include <iterator>
#include <optional>

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

// Of a machine that has no such table.
std::optional<CollectiveTable> modelled_table(const Cluster& cluster,
                                              const CollectiveSeries& series) {
  if (!cluster.topology || series_like(cluster, series) != nullptr) return std::nullopt;
  return attempt([&] { return priced_table(cluster, series); }).value;
}

void add_rows(std::vector<ClusterRow>& rows, const CollectiveSeries& series, Modelled modelled,
              const CollectiveTable& first, const CollectiveTable& second,
              const std::vector<Bytes>& sizes) {
  for (const Bytes bytes : sizes) {
    rows.push_back({.collective = series.collective,
                    .ranks = series.ranks,
                    .bytes = bytes,
                    .modelled = modelled,
                    .first_gb_s = bus_gb_s(series, first, bytes),
                    .second_gb_s = bus_gb_s(series, second, bytes)});
  }
}

}  // namespace

std::vector<ClusterRow> rows_of_both(const Cluster& first, const Cluster& second) {
  std::vector<ClusterRow> rows;
  for (const CollectiveSeries& one : first.collectives) {
    if (series_like(first, one) != &one) continue;
    const CollectiveTable before = priced_table(first, one);
    if (const CollectiveSeries* const other = series_like(second, one)) {
      add_rows(rows, one, Modelled::Neither, before, priced_table(second, *other),
               shared_sizes(one, *other));
    } else if (const auto after = modelled_table(second, one)) {
      add_rows(rows, one, Modelled::Second, before, *after, sizes_of(one));
    }
  }
  for (const CollectiveSeries& other : second.collectives) {
    const auto before = modelled_table(first, other);
    if (!before || series_like(second, other) != &other) continue;
    add_rows(rows, other, Modelled::First, *before, priced_table(second, other), sizes_of(other));
  }
  return rows;
}

std::vector<std::string> only_in(const Cluster& one, const Cluster& other) {
  std::vector<std::string> names;
  for (const CollectiveSeries& series : one.collectives) {
    if (series_like(other, series) != nullptr || modelled_table(other, series)) continue;
    names.push_back(std::string(to_string(series.collective)) + " over " +
                    std::to_string(series.ranks) + " ranks");
  }
  return names;
}

}  // namespace dovetail::models
