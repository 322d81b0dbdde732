// Plays schedules with each part of the costs at both of its ends.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/alike.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "search/planner.h"

namespace dovetail::search {
namespace {

// How much longer each schedule's step is than the best one's, as a share of it.
class Behind {
 public:
  Behind(const schedule::Program& program, models::Costs costs, const schedule::Schedule& best)
      : planner_(program, std::move(costs)), best_ns_(step_ns(best)) {}

  double of(const schedule::Schedule& schedule) { return step_ns(schedule) / best_ns_ - 1; }

 private:
  double step_ns(const schedule::Schedule& schedule) {
    return static_cast<double>(planner_.evaluate(schedule).step_ns) /
           static_cast<double>(schedule.merge.micro_steps);
  }

  Planner planner_;
  double best_ns_;
};

}  // namespace

std::vector<bool> alike(const schedule::Program& program, const models::Costs& costs,
                        std::span<const models::CostRange> ranges,
                        const std::vector<const schedule::Schedule*>& schedules, std::size_t best,
                        double reach) {
  DOVETAIL_CHECK(best < schedules.size()) << best;
  Behind usual(program, costs, *schedules[best]);
  std::vector<double> behind;
  for (const schedule::Schedule* one : schedules) behind.push_back(usual.of(*one));
  std::vector<double> squares(schedules.size());
  const auto nearer_by = [&](models::CostPart part, double factor) {
    Behind scaled(program, models::scaled(costs, part, factor), *schedules[best]);
    std::vector<double> nearer(schedules.size());
    for (std::size_t i = 0; i < schedules.size(); ++i) {
      if (i == best || behind[i] < 0 || behind[i] > reach) continue;
      nearer[i] = std::max(0.0, behind[i] - scaled.of(*schedules[i]));
    }
    return nearer;
  };
  std::vector<std::vector<double>> all(2 * ranges.size());
  parallel_for(all.size(), [&](std::size_t i) {
    const models::CostRange& range = ranges[i / 2];
    all[i] = nearer_by(range.part, i % 2 == 0 ? range.low : range.high);
  });
  for (const std::vector<double>& nearer : all) {
    for (std::size_t i = 0; i < squares.size(); ++i) squares[i] += nearer[i] * nearer[i];
  }
  std::vector<bool> found(schedules.size());
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const bool is_near = behind[i] >= 0 && behind[i] <= reach;
    found[i] = i != best && is_near && behind[i] <= std::sqrt(squares[i]);
  }
  return found;
}

}  // namespace dovetail::search
