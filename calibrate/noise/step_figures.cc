// Quantiles of a step's time and their standard errors, by drawing whole rounds of the measurement
// again and again: steps of one round met the same machine, so they are not independent.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/noise/step_figures.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace dovetail::testbed {
namespace {

constexpr std::size_t kFewestSteps = 8;
constexpr std::int32_t kDraws = 400;       // over all rounds, about
constexpr std::int32_t kFewestDraws = 20;  // of one round

std::vector<double> sorted_ns(std::span<const Duration> steps) {
  std::vector<double> sorted;
  for (const Duration step : steps) sorted.push_back(static_cast<double>(step.count()));
  std::ranges::sort(sorted);
  return sorted;
}

// The timings of round number `round`, of a lane with `steps` of them per round.
std::vector<exec::Timing> timings_of_round(const std::vector<exec::Timing>& timings,
                                           std::size_t round, std::int32_t steps) {
  const auto first = static_cast<std::int32_t>(round) * steps;
  std::vector<exec::Timing> of_round;
  for (const exec::Timing& timing : timings) {
    if (timing.step >= first && timing.step < first + steps) of_round.push_back(timing);
  }
  return of_round;
}

// When these timings of a plan ran: from the first start to the last end on the compute stream.
sim::DrawOptions::Stretch stretch_of(std::span<const exec::Timing> timings, std::int64_t begin_ns) {
  sim::DrawOptions::Stretch stretch = {.from = Duration::max(), .to = {}};
  for (const exec::Timing& timing : timings) {
    if (timing.stream != schedule::kComputeStream) continue;
    stretch.from = std::min(stretch.from, Duration(timing.start_ns - begin_ns));
    stretch.to = std::max(stretch.to, Duration(timing.end_ns - begin_ns));
  }
  return stretch;
}

}  // namespace

double quiet_known_to(std::span<const Duration> steps) {
  if (steps.size() < kFewestSteps) return 1;
  const std::vector<double> sorted = sorted_ns(steps);
  const auto count = static_cast<double>(sorted.size());
  const double bound = sorted[(sorted.size() + 4) / 5 - 1];
  double sum = 0;
  double squares = 0;
  for (const double step : sorted) {
    const double below = std::max(0.0, bound - step);
    sum += below;
    squares += below * below;
  }
  const double mean = sum / count;
  const double error = 5 * std::sqrt(std::max(0.0, squares / count - mean * mean) / count);
  const double quick = bound - 5 * mean;
  return quick <= 0 ? 1 : error / quick;
}

double typical_known_to(std::span<const Duration> steps) {
  if (steps.size() < kFewestSteps) return 1;
  const std::vector<double> sorted = sorted_ns(steps);
  const auto count = static_cast<double>(sorted.size());
  const double error = std::sqrt(count) / 2;
  const auto at = [&](double position) {
    return sorted[static_cast<std::size_t>(std::clamp(std::ceil(position) - 1, 0.0, count - 1))];
  };
  const double median = at(count / 2);
  return median <= 0 ? 1 : (at(count / 2 + error) - at(count / 2 - error)) / 2 / median;
}

RoundCosts costs_of_round(const exec::Exchange& exchange, const Ran& ran, std::size_t round,
                          const traces::CoreRecord& record, std::int64_t begin_ns) {
  const auto timings_of = [&](std::size_t lane) {
    return timings_of_round(ran.measured.own[lane].timings, round, exec::steps_of(ran.turns, lane));
  };
  const auto watched = [&](const std::vector<exec::Timing>& timings) {
    return Watched{
        .timings = timings, .record = record, .begin_ns = begin_ns, .shield = ran.shield};
  };
  std::size_t lane = ran.measured.own.size() - ran.probes.programs().size();
  RoundCosts costs;
  costs.away = share_records(exchange, record);
  for (const OpProbes& one : ran.probes.ops) {
    costs.ops.push_back(share_op_times(
        exchange, op_times(one.program, exchange.rank, timings_of(lane++), record, begin_ns)));
  }
  for (const schedule::ScheduledProgram& collectives : ran.probes.collectives) {
    const std::vector<exec::Timing> timings = timings_of(lane++);
    add_collectives(exchange, collectives, watched(timings), costs.costs);
  }
  if (ran.probes.copies) {
    const std::vector<exec::Timing> timings = timings_of(lane++);
    add_copies(exchange, *ran.probes.copies, watched(timings), costs.costs);
  }
  for (std::size_t plan = 0; plan < ran.plans; ++plan) {
    costs.ran.push_back(stretch_of(timings_of(plan), begin_ns));
  }
  return costs;
}

std::vector<RoundCosts> costs_of_rounds(const exec::Exchange& exchange, const Ran& ran,
                                        const ReferenceLoad& reference_load) {
  std::vector<RoundCosts> rounds;
  for (std::size_t round = 0; round < ran.measured.rounds.size(); ++round) {
    const exec::RoundTime& time = ran.measured.rounds[round];
    const traces::CoreRecord record = reference_load.record(time.begin_ns, time.end_ns);
    RoundCosts costs = costs_of_round(exchange, ran, round, record, time.begin_ns);
    if (round > 0) costs.costs = completed(std::move(costs.costs), rounds.back().costs);
    rounds.push_back(std::move(costs));
  }
  return rounds;
}

sim::Figures predict_over_rounds(const schedule::ScheduledProgram& program,
                                 const models::Costs& costs, std::span<const RoundCosts> rounds,
                                 std::size_t plan, std::size_t between, Duration shield) {
  DOVETAIL_CHECK(!rounds.empty()) << "no rounds";
  const auto draws = std::max(kFewestDraws, kDraws / static_cast<std::int32_t>(rounds.size()));
  std::vector<Duration> steps;
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    const std::vector<Duration> drawn = sim::draw_steps(
        program, with(costs, rounds[round].costs),
        {.ops = rounds[round].ops.at(between), .away = rounds[round].away},
        {.draws = draws, .seed = round, .shield = shield, .within = rounds[round].ran.at(plan)});
    steps.insert(steps.end(), drawn.begin(), drawn.end());
  }
  return sim::figures_of(std::move(steps));
}

}  // namespace dovetail::testbed
