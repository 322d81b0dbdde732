// Sorts collectives by what they are and takes the middle of each.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/measured_series.h"

#include "base/statistics.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace dovetail::diagnose {
namespace {

std::optional<schedule::Collective> sized_kind(CollectiveKind kind) {
  using schedule::Collective;
  switch (kind) {
    case CollectiveKind::AllReduce:
      return Collective::AllReduce;
    case CollectiveKind::ReduceScatter:
      return Collective::ReduceScatter;
    case CollectiveKind::AllGather:
      return Collective::AllGather;
    case CollectiveKind::AllToAll:
      return Collective::AllToAll;
    default:
      return std::nullopt;
  }
}

bool can_be_compared(const TracedCollective& collective, std::int64_t ranks, std::int64_t world) {
  constexpr std::int64_t kNode = 8;
  if (ranks == world) return true;
  const std::vector<std::int64_t>& members = collective.members;
  return !members.empty() && ranks <= kNode && members.back() - members.front() + 1 == ranks &&
         members.front() / kNode == members.back() / kNode;
}

}  // namespace

std::vector<MeasuredSeries> measured_series(const JobTrace& job) {
  using Key = std::tuple<schedule::Collective, std::int64_t, bool>;
  std::map<Key, std::map<Bytes, std::vector<Duration>>> own;
  std::map<Key, Duration> time;
  const std::int64_t world = job.world_size().value_or(0);
  std::int64_t steps = 0;
  for (const RankTrace& rank : job.ranks) {
    if (rank.line.on_cpu) return {};
    steps += std::ssize(rank.line.steps);
    for (std::size_t c = 0; c < rank.line.collectives.size(); ++c) {
      const TracedCollective& collective = rank.line.collectives[c];
      const GpuWork& work = rank.line.works[static_cast<std::size_t>(collective.work)];
      const auto kind = sized_kind(collective.kind);
      const std::int64_t ranks =
          std::max(collective.group_size.value_or(0), std::ssize(collective.members));
      if (!kind || !collective.bytes || work.step == kNone || ranks < 2) continue;
      if (rank.transfer[c] <= Duration{}) continue;
      const Key key{*kind, ranks, can_be_compared(collective, ranks, world)};
      own[key][*collective.bytes].push_back(rank.transfer[c]);
      time[key] += work.end - work.start;
    }
  }
  std::vector<MeasuredSeries> found;
  for (auto& [key, sizes] : own) {
    MeasuredSeries series;
    std::tie(series.table.collective, series.table.ranks, series.is_comparable) = key;
    std::vector<models::CollectivePoint> points;
    for (auto& [bytes, times] : sizes) {
      models::CollectivePoint point;
      point.bytes = bytes;
      point.isolated = median(std::move(times));
      points.push_back(point);
    }
    series.table.times = std::move(points);
    series.time = time[key] / std::max<std::int64_t>(1, steps);
    found.push_back(std::move(series));
  }
  std::ranges::stable_sort(found, std::ranges::greater{}, &MeasuredSeries::time);
  return found;
}

}  // namespace dovetail::diagnose
