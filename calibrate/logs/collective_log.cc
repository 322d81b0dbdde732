// Sums up samples of collectives, whatever program printed them, as one table per collective,
// group and size: medians, and quantiles where there are enough samples.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/collective_log.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

namespace dovetail::imports {
namespace {

using models::CollectivePoint;
using models::CollectiveSeries;
using schedule::Collective;

// The value below which this share of the samples lies. REQUIRES: times is sorted and not empty.
Duration quantile(const std::vector<Duration>& times, double share) {
  const auto last = static_cast<double>(times.size() - 1);
  return times[static_cast<std::size_t>(std::lround(share * last))];
}

// The mean of the two in the middle where there are two: these are sorted and few.
Duration middle_of(const std::vector<Duration>& times) {
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

struct SizeSamples {
  std::vector<Duration> alone, queued;
};

CollectivePoint point_of(std::int64_t bytes, SizeSamples& samples) {
  constexpr std::size_t kEnoughForQuantiles = 10;
  std::ranges::sort(samples.alone);
  std::ranges::sort(samples.queued);
  const std::vector<Duration>& first = samples.alone.empty() ? samples.queued : samples.alone;
  CollectivePoint point{.bytes = Bytes(bytes), .isolated = middle_of(first)};
  if (!samples.alone.empty() && !samples.queued.empty()) {
    point.back_to_back = middle_of(samples.queued);
  }
  if (first.size() >= kEnoughForQuantiles) {
    point.p10 = quantile(first, 0.1);
    point.p90 = quantile(first, 0.9);
  }
  return point;
}

}  // namespace

std::string library_in_words(const CollectiveLog& log) {
  return log.nccl.empty() ? "" : ", " + log.library + " " + log.nccl;
}

void append(CollectiveLog& all, CollectiveLog&& next) {
  if (all.tool.empty()) all.tool = next.tool;
  if (all.gpu.empty()) all.gpu = next.gpu;
  if (all.nccl.empty()) {
    all.nccl = next.nccl;
    all.library = next.library;
  }
  if (!next.gpu.empty() && next.gpu != all.gpu) {
    all.left_out.push_back("the files come from different GPUs: " + all.gpu + " and " + next.gpu);
  }
  if (!next.nccl.empty() && next.nccl != all.nccl) {
    all.left_out.push_back("the files come from different versions of the library: " + all.nccl +
                           " and " + next.nccl);
  }
  const auto move_all = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  move_all(all.samples, next.samples);
  move_all(all.read, next.read);
  move_all(all.left_out, next.left_out);
}

std::vector<CollectiveSeries> tables_of(const std::vector<CollectiveSample>& samples) {
  struct Table {
    std::optional<std::int64_t> nodes;
    std::map<std::int64_t, SizeSamples> sizes;
  };
  std::map<std::pair<Collective, std::int64_t>, Table> tables;
  for (const CollectiveSample& sample : samples) {
    Table& table = tables[{sample.collective, sample.ranks}];
    if (sample.nodes) table.nodes = std::max(table.nodes.value_or(1), *sample.nodes);
    SizeSamples& size = table.sizes[sample.bytes.count()];
    (sample.launch == Launch::Alone ? size.alone : size.queued).push_back(sample.time);
  }
  std::vector<CollectiveSeries> result;
  for (auto& [key, table] : tables) {
    std::vector<CollectivePoint> points;
    for (auto& [bytes, times] : table.sizes) points.push_back(point_of(bytes, times));
    CollectiveSeries series;
    series.collective = key.first;
    series.ranks = key.second;
    series.nodes = table.nodes;
    series.times = std::move(points);
    result.push_back(std::move(series));
  }
  return result;
}

std::vector<std::string> doubts_of(const CollectiveSeries& series) {
  constexpr double kFaster = 1.25;
  constexpr double kFarBelow = 0.5;
  std::vector<std::string> doubts;
  const auto* const points = std::get_if<std::vector<CollectivePoint>>(&series.times);
  if (points == nullptr) return doubts;
  const std::string title = std::string(to_string(series.collective)) + " over " +
                            std::to_string(series.ranks) + " ranks: ";
  const auto ns = [&](std::size_t i) { return static_cast<double>((*points)[i].isolated.count()); };
  const auto size = [&](std::size_t i) {
    return std::log(static_cast<double>((*points)[i].bytes.count()));
  };
  const auto rate_at = [&](std::size_t i) {
    return static_cast<double>((*points)[i].bytes.count()) / ns(i);
  };
  const auto timed = [&](std::size_t i) {
    return to_string((*points)[i].bytes) + " takes " + to_string((*points)[i].isolated);
  };
  for (std::size_t i = 1; i < points->size(); ++i) {
    if (ns(i) * kFaster < ns(i - 1)) {
      doubts.push_back(title + to_string((*points)[i - 1].bytes) + " takes longer (" +
                       to_string((*points)[i - 1].isolated) + ") than " +
                       to_string((*points)[i].bytes) + " (" + to_string((*points)[i].isolated) +
                       "): a change of protocol or a disturbance");
    } else if (i + 1 < points->size()) {
      const double share = (size(i) - size(i - 1)) / (size(i + 1) - size(i - 1));
      const double between = ns(i - 1) * std::pow(ns(i + 1) / ns(i - 1), share);
      const bool is_peak =
          rate_at(i) > kFaster * rate_at(i - 1) && rate_at(i) > kFaster * rate_at(i + 1);
      if (ns(i) < kFarBelow * between && is_peak) {
        doubts.push_back(title + timed(i) + ", far below what its neighbours lead to expect, " +
                         to_string(from_ns(between)));
      }
    }
  }
  return doubts;
}

double algorithm_bandwidth(Bytes bytes, Duration time) {
  return static_cast<double>(bytes.count()) / static_cast<double>(time.count());
}

}  // namespace dovetail::imports
