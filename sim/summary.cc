// Step time and exposed communication straight from a Timeline.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "sim/simulate.h"

namespace dovetail::sim {
namespace {

using Interval = std::pair<std::int64_t, std::int64_t>;

// Sorted, disjoint, non-empty intervals that cover the same time.
std::vector<Interval> merged(std::vector<Interval> intervals) {
  // Those of one stream come in order.
  if (!std::ranges::is_sorted(intervals)) std::ranges::sort(intervals);
  std::vector<Interval> result;
  for (const Interval& next : intervals) {
    if (next.first >= next.second) continue;
    if (!result.empty() && next.first <= result.back().second) {
      result.back().second = std::max(result.back().second, next.second);
    } else {
      result.push_back(next);
    }
  }
  return result;
}

std::int64_t length(const std::vector<Interval>& intervals) {
  std::int64_t sum = 0;
  for (const Interval& interval : intervals) sum += interval.second - interval.first;
  return sum;
}

// Length of the common part of two merged lists.
std::int64_t overlap(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::int64_t sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max<std::int64_t>(
        0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    (a[i].second < b[j].second ? i : j) += 1;
  }
  return sum;
}

}  // namespace

StepSummary summarize(const Graph& graph, const Timeline& timeline) {
  const std::int32_t step = graph.steps - 1;
  std::vector<std::int64_t> ends(static_cast<std::size_t>(graph.ranks), 0);
  std::int64_t before = 0;  // end of the step before
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(graph.command_nodes.size()); ++c) {
    const CommandNode& entry = graph.command_nodes[static_cast<std::size_t>(c)];
    for (std::int32_t rank = 0; rank < graph.ranks; ++rank) {
      const std::int64_t end = timeline.end[static_cast<std::size_t>(graph.on_rank(c, rank))];
      if (entry.step == step) {
        auto& latest = ends[static_cast<std::size_t>(rank)];
        latest = std::max(latest, end);
      } else if (entry.step == step - 1) {
        before = std::max(before, end);
      }
    }
  }
  const auto slowest = static_cast<std::int32_t>(std::ranges::max_element(ends) - ends.begin());
  std::vector<Interval> compute;
  std::vector<Interval> communication;
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(graph.command_nodes.size()); ++c) {
    const CommandNode& entry = graph.command_nodes[static_cast<std::size_t>(c)];
    if (entry.step != step || entry.kind == NodeKind::WakeUp) continue;
    const auto node = static_cast<std::size_t>(graph.on_rank(c, slowest));
    std::int64_t start = timeline.start[node];
    const bool transfer = entry.kind == NodeKind::Collective;
    if (!transfer) start = std::min(start + graph.launch_gap, timeline.end[node]);
    (transfer ? communication : compute).emplace_back(start, timeline.end[node]);
  }
  compute = merged(std::move(compute));
  communication = merged(std::move(communication));
  StepSummary summary;
  summary.step_ns = ends[static_cast<std::size_t>(slowest)] - before;
  summary.communication_ns = length(communication);
  summary.compute_ns = length(compute);
  summary.exposed_ns = summary.communication_ns - overlap(compute, communication);
  return summary;
}

}  // namespace dovetail::sim
