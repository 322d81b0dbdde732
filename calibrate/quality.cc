// Rules that hold on every backend, and what the operating system says.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/quality.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/count.h"
#include "base/decimal.h"

namespace dovetail::calibrate {
namespace {

// Below this the computing and the queue hardly met, and their ratio is noise.
constexpr std::int64_t kFewestOverlapped = 10;
// Of collectives: a table of fewer says little about what lies between its sizes.
constexpr std::size_t kFewestSizes = 8;
constexpr std::size_t kFewestFurther = 5;  // of the other kinds and groups
// A size left out is interpolated from its neighbours to within this, or the table is too coarse or
// too noisy.
constexpr double kMostLeftOut = 0.5;
// Slow-downs beyond this are no contention: the two kinds took turns, or the measurement failed.
constexpr double kMostSlowdown = 10;

using Points = std::vector<models::CollectivePoint>;

// How far the size at `at` is from the line between its neighbours, relative to itself.
template <class TimeOf>
double off_the_line(const Points& sizes, std::size_t at, const TimeOf& time_of) {
  const auto bytes = [&](std::size_t i) { return static_cast<double>(sizes[i].bytes.count()); };
  const auto time = [&](std::size_t i) { return static_cast<double>(time_of(sizes[i]).count()); };
  const double place = (bytes(at) - bytes(at - 1)) / (bytes(at + 1) - bytes(at - 1));
  const double between = time(at - 1) + place * (time(at + 1) - time(at - 1));
  return time(at) > 0 ? std::abs(between / time(at) - 1) : 0;
}

// The worst, alone and in a queue alike: on a shaped link, which has credit for small ones, one of both times has a
// corner where that ends. 0 for fewer than three sizes.
double worst_left_out(const Points& sizes) {
  double worst = 0;
  for (std::size_t at = 1; at + 1 < sizes.size(); ++at) {
    const auto alone = [](const auto& size) { return size.isolated; };
    const auto queued = [](const auto& size) { return size.back_to_back.value_or(size.isolated); };
    worst =
        std::max(worst, std::min(off_the_line(sizes, at, alone), off_the_line(sizes, at, queued)));
  }
  return worst;
}

std::optional<double> residual_of(const Points& sizes) {
  std::vector<exec::SizedTime> queue;
  for (const models::CollectivePoint& size : sizes) {
    queue.push_back({.bytes = size.bytes, .time = size.back_to_back.value_or(size.isolated)});
  }
  return exec::line_residual(queue);
}

const Points& points_of(const models::CollectiveSeries& series) {
  return std::get<Points>(series.times);
}

// Of the tables, and of what ran side by side.
std::vector<std::string> doubts_about(const models::Cluster& cluster, const Evidence& evidence) {
  std::vector<std::string> why;
  if (evidence.contention_ops < kFewestOverlapped ||
      evidence.contention_collectives < kFewestOverlapped) {
    why.push_back("too little ran side by side to tell contention: " +
                  counted(evidence.contention_ops, "op") + " and " +
                  counted(evidence.contention_collectives, "collective"));
  }
  const Points& sizes = points_of(cluster.collectives.front());
  if (sizes.size() < kFewestSizes) {
    why.push_back("only " + counted(sizes.size(), "size") + " of collectives within the budget");
  }
  const double left_out = worst_left_out(sizes);
  if (left_out > kMostLeftOut) {
    why.push_back("a collective is " + fixed(100 * left_out, 0) +
                  " % off the line between its neighbours in size");
  }
  for (const models::CollectiveSeries& series : std::span(cluster.collectives).subspan(1)) {
    if (points_of(series).size() >= kFewestFurther) continue;
    why.push_back("only " + counted(points_of(series).size(), "size") + " of " +
                  std::string(to_string(series.collective)) + " over " +
                  std::to_string(series.ranks) + " within the budget");
  }
  const models::Contention& contention = cluster.contention;
  for (const double slowdown :
       {contention.compute_slowdown, contention.collective_slowdown,
        contention.gemm_slowdown.value_or(1), contention.memory_slowdown.value_or(1),
        contention.collective_gemm_slowdown.value_or(1),
        contention.collective_memory_slowdown.value_or(1)}) {
    if (slowdown <= kMostSlowdown) continue;
    why.push_back("a slow-down of x" + fixed(slowdown, 1) + " is no contention");
  }
  return why;
}

}  // namespace

models::Quality quality_of(const models::Cluster& cluster, const Evidence& evidence) {
  const Points& sizes = points_of(cluster.collectives.front());
  exec::Conditions judged = evidence.conditions;
  // TCP over a link is a line from 128 KiB on; other libraries change their protocol with the size.
  if (cluster.backend == models::BackendKind::Cpu) judged.fit_residual = residual_of(sizes);
  models::Quality quality;
  quality.why = exec::validity_of(judged).reasons;
  for (std::string& doubt : doubts_about(cluster, evidence))
    quality.why.push_back(std::move(doubt));
  quality.valid = quality.why.empty();
  quality.outside_cpu = judged.outside_cpu;
  quality.steal = judged.steal;
  quality.fit_residual = judged.fit_residual;
  quality.figures = evidence.figures;
  if (judged.spread) quality.figures["step_spread"] = *judged.spread;
  if (judged.core_taken) quality.figures["core_taken_share"] = *judged.core_taken;
  quality.figures["left_out"] = worst_left_out(sizes);
  quality.figures["contention_ops"] = static_cast<double>(evidence.contention_ops);
  quality.figures["contention_collectives"] = static_cast<double>(evidence.contention_collectives);
  return quality;
}

void object(models::Cluster& cluster, const std::string& objection) {
  models::Quality& quality = *cluster.quality;
  quality.valid = false;
  if (std::ranges::find(quality.why, objection) == quality.why.end()) {
    quality.why.push_back(objection);
  }
}

}  // namespace dovetail::calibrate
