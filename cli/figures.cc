// Quantiles, their errors, and draws over rounds.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/figures.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "exec/calibrate/compute.h"

namespace dovetail::cli {
namespace {

constexpr std::size_t kFewestSteps = 8;
constexpr std::int32_t kDraws = 400;       // over all rounds, about
constexpr std::int32_t kFewestDraws = 20;  // of one round

// The same ops in the same order on every rank.
bool compute_alike(const schedule::ScheduledProgram& a, const schedule::ScheduledProgram& b) {
  if (a.roles.size() != b.roles.size()) return false;
  for (std::size_t role = 0; role < a.roles.size(); ++role) {
    const auto& left = a.roles[role];
    const auto& right = b.roles[role];
    if (left.ranks != right.ranks || left.commands.size() != right.commands.size()) return false;
    for (std::size_t i = 0; i < left.commands.size(); ++i) {
      const OpId x = std::get<schedule::RunOp>(left.commands[i].action).op;
      const OpId y = std::get<schedule::RunOp>(right.commands[i].action).op;
      if (x != y || a.program.op(x) != b.program.op(y)) return false;
    }
  }
  return true;
}

}  // namespace

double known_to(std::span<const Duration> steps, double quantile) {
  if (steps.size() < kFewestSteps) return 1;
  std::vector<Duration> sorted(steps.begin(), steps.end());
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<double>(sorted.size());
  const double middle = quantile * count;
  const double error = std::sqrt(count * quantile * (1 - quantile));
  const auto at = [&](double position) {
    const auto last = static_cast<double>(sorted.size() - 1);
    return static_cast<double>(
        sorted[static_cast<std::size_t>(std::clamp(std::ceil(position) - 1, 0.0, last))].count());
  };
  return at(middle) <= 0 ? 1 : (at(middle + error) - at(middle - error)) / 2 / at(middle);
}

std::vector<Between> between_programs(std::span<const schedule::ScheduledProgram* const> plans) {
  std::vector<Between> all;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    schedule::ScheduledProgram alone = exec::calibrate::without_communication(*plans[i]);
    const auto same = std::find_if(all.begin(), all.end(), [&](const Between& other) {
      return compute_alike(other.program, alone);
    });
    if (same == all.end()) {
      all.push_back({.program = std::move(alone), .plans = {i}});
    } else {
      same->plans.push_back(i);
    }
  }
  return all;
}

sim::Figures predict_over_rounds(const schedule::ScheduledProgram& program,
                                 const models::Costs& costs, std::span<const RoundCosts> rounds,
                                 std::size_t plan, std::size_t between, Duration shield) {
  DOVETAIL_CHECK(!rounds.empty()) << "no rounds";
  const auto draws = std::max(kFewestDraws, kDraws / static_cast<std::int32_t>(rounds.size()));
  std::vector<Duration> steps;
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    const std::vector<Duration> drawn = sim::draw_steps(
        program, costs, {.ops = rounds[round].ops.at(between), .away = rounds[round].away},
        {.draws = draws, .seed = round, .shield = shield, .within = rounds[round].ran.at(plan)});
    steps.insert(steps.end(), drawn.begin(), drawn.end());
  }
  return sim::figures_of(std::move(steps));
}

}  // namespace dovetail::cli
