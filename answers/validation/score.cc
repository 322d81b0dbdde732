// Compares predictions with measurements, and orders of layouts with each other.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "answers/validation/yardstick.h"
#include "base/statistics.h"

namespace dovetail::yardsticks {
namespace {

constexpr std::size_t kFewestRanked = 5;
constexpr std::int64_t kFewestSizes = 3;

Errors errors_of(const std::vector<double>& signed_errors) {
  Errors errors{.rows = static_cast<std::int64_t>(signed_errors.size())};
  if (signed_errors.empty()) return errors;
  std::vector<double> sizes;
  for (const double error : signed_errors) sizes.push_back(std::abs(error));
  std::ranges::sort(sizes);
  errors.median = median(signed_errors);
  errors.median_absolute = median(sizes);
  errors.p90_absolute = sizes[(sizes.size() * 9 - 1) / 10];
  return errors;
}

double error_percent(double predicted, double measured) { return (predicted / measured - 1) * 100; }

struct Step {
  double predicted, measured;
};

// Concordant pairs less discordant ones, over the geometric mean of pairs that are no ties.
double tau_b(const std::vector<Step>& steps) {
  double order = 0, predicted_pairs = 0, measured_pairs = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto sign = [](double difference) { return (difference > 0) - (difference < 0); };
      const int predicted = sign(steps[i].predicted - steps[j].predicted);
      const int measured = sign(steps[i].measured - steps[j].measured);
      order += predicted * measured;
      predicted_pairs += std::abs(predicted);
      measured_pairs += std::abs(measured);
    }
  }
  const double pairs = std::sqrt(predicted_pairs * measured_pairs);
  return pairs > 0 ? order / pairs : 0;
}

// A row's step, where it is a job that can run and is priced.
std::optional<Step> step_of(const Row& row, const StepPredictor& predict) {
  if (!row.step || !row.job || !row.can_start) return std::nullopt;
  const std::optional<PricedStep> predicted = predict(row);
  if (!predicted) return std::nullopt;
  return Step{.predicted = to_us(predicted->step), .measured = to_us(*row.step)};
}

using StepsBySize = std::multimap<std::int64_t, Step>;

Scaling scaling_of(const std::string& rows, const StepsBySize& steps) {
  Scaling scaling{
      .rows = rows, .fewest_gpus = steps.begin()->first, .most_gpus = steps.rbegin()->first};
  for (auto from = steps.begin(); from != steps.end(); from = steps.upper_bound(from->first)) {
    ++scaling.sizes;
  }
  for (const auto& [from, fewer] : steps) {
    for (auto to = steps.upper_bound(from); to != steps.end(); ++to) {
      const Step& more = to->second;
      const double error =
          error_percent(more.predicted / fewer.predicted, more.measured / fewer.measured);
      if (scaling.worst_from != 0 && std::abs(error) <= std::abs(scaling.worst_percent)) continue;
      scaling.worst_percent = error;
      scaling.worst_from = from;
      scaling.worst_to = to->first;
    }
  }
  return scaling;
}

double regret_percent(const std::vector<Step>& steps) {
  const Step chosen = *std::ranges::min_element(steps, {}, &Step::predicted);
  const Step best = *std::ranges::min_element(steps, {}, &Step::measured);
  return error_percent(chosen.measured, best.measured);
}

}  // namespace

Bytes predicted_memory(const Yardstick& yardstick, const Row& row) {
  const std::vector<jobs::StageMemory> stages = memory_of(*row.job, row.rules);
  Bytes most;
  for (const jobs::StageMemory& stage : stages) {
    most = std::max(most,
                    yardstick.kind == MemoryKind::Reserved ? stage.reserved() : stage.allocated());
    if (yardstick.of == MemoryOf::FirstStage) break;
  }
  return most;
}

bool predicted_to_run(const Row& row) {
  if (!row.job || !row.can_start) return false;
  const std::vector<jobs::StageMemory> stages = memory_of(*row.job, row.rules);
  return stages[fullest(stages)].total() <= *row.capacity;
}

double MemoryScore::right_percent() const {
  return judged == 0 ? 0 : 100 * static_cast<double>(right) / static_cast<double>(judged);
}

MemoryScore score_memory(const Yardstick& yardstick) {
  MemoryScore score;
  std::vector<double> errors;
  for (const Row& row : yardstick.rows) {
    if (row.capacity) {
      const bool runs = predicted_to_run(row);
      ++score.judged;
      score.right += runs == row.ran ? 1 : 0;
      score.ran_but_refused += row.ran && !runs ? 1 : 0;
      score.failed_but_allowed += !row.ran && runs ? 1 : 0;
    }
    if (!row.job || !row.can_start || !row.memory) continue;
    errors.push_back(error_percent(static_cast<double>(predicted_memory(yardstick, row).count()),
                                   static_cast<double>(row.memory->count())));
  }
  score.peak = errors_of(errors);
  return score;
}

TimeScore score_time(const Yardstick& yardstick, const StepPredictor& predict) {
  TimeScore score;
  std::vector<double> errors;
  std::map<std::string, std::vector<Step>> groups;
  for (const Row& row : yardstick.rows) {
    score.rows += row.step ? 1 : 0;
    const std::optional<Step> step = step_of(row, predict);
    if (!step) continue;
    ++score.priced;
    errors.push_back(error_percent(step->predicted, step->measured));
    groups[row.group].push_back(*step);
  }
  score.step = errors_of(errors);
  std::vector<double> taus, regrets;
  for (const auto& [group, steps] : groups) {
    if (group.empty() || steps.size() < kFewestRanked) continue;
    taus.push_back(tau_b(steps));
    regrets.push_back(regret_percent(steps));
  }
  score.groups = static_cast<std::int64_t>(taus.size());
  score.kendall_tau = median_or(taus, 0.0);
  score.regret_percent = median_or(regrets, 0.0);
  for (const double regret : regrets) {
    score.worst_regret_percent = std::max(score.worst_regret_percent, regret);
  }
  return score;
}

std::vector<Ordering> score_ordering(const Yardstick& yardstick, const StepPredictor& predict) {
  constexpr std::array kRanges = {0.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0};
  std::map<std::pair<std::string, bool>, std::vector<Step>> groups;
  for (const Row& row : yardstick.rows) {
    if (row.group.empty()) continue;
    if (const std::optional<Step> step = step_of(row, predict))
      groups[{row.group, row.job->layout.world() <= row.node_gpus}].push_back(*step);
  }
  std::map<std::pair<bool, std::size_t>, Ordering> found;
  for (const auto& [group, steps] : groups) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        auto [slow, fast] = std::pair(steps[i], steps[j]);
        if (slow.predicted < fast.predicted) std::swap(slow, fast);
        const double shorter = -error_percent(fast.predicted, slow.predicted);
        const auto range =
            static_cast<std::size_t>(std::ranges::upper_bound(kRanges, shorter) - kRanges.begin());
        Ordering& ordering = found[{!group.second, range}];
        ordering.one_node = group.second;
        ordering.from_percent = kRanges[range - 1];
        ordering.to_percent = kRanges[range];
        ++ordering.pairs;
        ordering.right += fast.measured < slow.measured ? 1 : 0;
      }
    }
  }
  std::vector<Ordering> orderings;
  for (const auto& [key, ordering] : found) orderings.push_back(ordering);
  return orderings;
}

std::vector<Scaling> score_scaling(const Yardstick& yardstick, const StepPredictor& predict) {
  std::map<std::string, StepsBySize> steps;
  for (const Row& row : yardstick.rows) {
    if (row.scaling.empty()) continue;
    if (const std::optional<Step> step = step_of(row, predict))
      steps[row.scaling].emplace(row.job->layout.world(), *step);
  }
  std::vector<Scaling> scalings;
  for (const auto& [rows, by_size] : steps) {
    Scaling scaling = scaling_of(rows, by_size);
    if (scaling.sizes >= kFewestSizes) scalings.push_back(std::move(scaling));
  }
  return scalings;
}

}  // namespace dovetail::yardsticks
