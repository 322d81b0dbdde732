// Quantiles of samples that weigh by their source, with one source left out in turn.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/intervals.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace dovetail::yardsticks {
namespace {

constexpr std::size_t kFewest = 5;

// A yardstick, and the cause that some of its rows have for themselves.
using Source = std::pair<std::string, std::string>;
using Samples = std::map<Source, std::vector<double>>;

bool speaks(const Source& source, const std::vector<double>& values, const std::string& without) {
  return source.first != without && source.second.empty() && values.size() >= kFewest;
}

// The q-quantile where each yardstick but `without` has the same weight; 1 of nothing.
double quantile(const Samples& samples, double q, const std::string& without = "") {
  std::vector<std::pair<double, double>> weighted;
  double sum = 0;
  for (const auto& [source, values] : samples) {
    if (!speaks(source, values, without)) continue;
    const double weight = 1 / static_cast<double>(values.size());
    for (const double value : values) weighted.emplace_back(value, weight);
    sum += 1;
  }
  std::ranges::sort(weighted);
  double below = 0;
  for (const auto& [value, weight] : weighted) {
    below += weight;
    if (below >= q * sum - 1e-9) return value;
  }
  return 1;
}

Range range(const Samples& samples, const std::string& without = "") {
  return {.p5 = quantile(samples, 0.05, without),
          .p50 = quantile(samples, 0.5, without),
          .p95 = quantile(samples, 0.95, without)};
}

bool others_speak(const Samples& samples, const std::string& without) {
  return std::ranges::any_of(
      samples, [&](const auto& each) { return speaks(each.first, each.second, without); });
}

std::int64_t inside(const std::vector<double>& values, double from, double to) {
  return std::ranges::count_if(values, [&](double value) { return value >= from && value <= to; });
}

Coverage coverage_of(const Samples& ratios, const Source& source,
                     const std::vector<double>& values) {
  const std::string& yardstick = source.first;
  Coverage one{.yardstick = yardstick,
               .own_cause = source.second,
               .rows = static_cast<std::int64_t>(values.size()),
               .others = range(ratios, yardstick)};
  if (values.size() >= kFewest) one.own = range({{{yardstick, ""}, values}});
  one.inside = inside(values, one.others.p5, one.others.p95);
  return one;
}

Samples ratios_of(const std::vector<StepOf>& steps, jobs::StepKind kind) {
  Samples ratios;
  for (const StepOf& step : steps) {
    if (step.kind == kind)
      ratios[{step.yardstick, step.own_cause}].push_back(step.measured / step.predicted);
  }
  return ratios;
}

// By which factor the ratio of two steps is off, at least 1. Steps with one prediction are the same job run twice.
Samples pairs_of(const std::vector<StepOf>& steps, jobs::StepKind kind) {
  std::map<std::pair<Source, std::string>, std::vector<const StepOf*>> groups;
  for (const StepOf& step : steps) {
    if (step.kind == kind && !step.group.empty())
      groups[{{step.yardstick, step.own_cause}, step.group}].push_back(&step);
  }
  Samples pairs;
  const auto error = [](const StepOf& step) { return std::log(step.measured / step.predicted); };
  for (const auto& [group, of_group] : groups) {
    for (std::size_t i = 0; i < of_group.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (of_group[i]->predicted == of_group[j]->predicted) continue;
        pairs[group.first].push_back(std::exp(std::abs(error(*of_group[i]) - error(*of_group[j]))));
      }
    }
  }
  return pairs;
}

}  // namespace

std::vector<StepOf> steps_of(const Yardstick& yardstick, const StepPredictor& predict) {
  std::vector<StepOf> steps;
  for (const Row& row : yardstick.rows) {
    if (!row.step || !row.job || !row.can_start) continue;
    const std::optional<PricedStep> predicted = predict(row);
    if (!predicted) continue;
    const bool is_host = predicted->host_bound && row.own_cause.empty();
    steps.push_back({.yardstick = yardstick.name,
                     .own_cause = is_host ? "bound by the host" : row.own_cause,
                     .group = row.group,
                     .kind = step_kind(*row.job, row.node_gpus),
                     .predicted = to_us(predicted->step),
                     .measured = to_us(*row.step)});
  }
  return steps;
}

Intervals score_intervals(const std::vector<StepOf>& steps) {
  Intervals found;
  for (const jobs::StepKind kind : kAllOf<jobs::StepKind>) {
    const Samples ratios = ratios_of(steps, kind);
    const Samples pairs = pairs_of(steps, kind);
    Samples told = pairs;  // of those that say something
    std::erase_if(told, [&](const auto& of) { return !speaks(of.first, ratios.at(of.first), ""); });
    if (others_speak(ratios, "")) {
      found.all[kind] = range(ratios);
      found.apart[kind] = quantile(told, 0.9);
    }
    for (const auto& [source, values] : ratios) {
      const std::string& yardstick = source.first;
      if (!others_speak(ratios, yardstick)) continue;
      Coverage one = coverage_of(ratios, source, values);
      one.kind = kind;
      const auto own_pairs = pairs.find(source);
      if (own_pairs != pairs.end() && others_speak(told, yardstick)) {
        one.pairs = static_cast<std::int64_t>(own_pairs->second.size());
        if (one.own) one.apart = quantile({{{yardstick, ""}, own_pairs->second}}, 0.9);
        one.others_apart = quantile(told, 0.9, yardstick);
        one.pairs_inside = inside(own_pairs->second, 1, one.others_apart);
      }
      found.coverage.push_back(std::move(one));
    }
  }
  return found;
}

PeakIntervals score_peaks(const std::vector<Yardstick>& yardsticks) {
  Samples ratios;
  for (const Yardstick& yardstick : yardsticks) {
    for (const Row& row : yardstick.rows) {
      if (!row.job || !row.can_start || !row.memory) continue;
      const Bytes predicted = predicted_memory(yardstick, row);
      ratios[{yardstick.name, ""}].push_back(static_cast<double>(row.memory->count()) /
                                             static_cast<double>(predicted.count()));
    }
  }
  PeakIntervals found{.all = range(ratios)};
  for (const auto& [source, values] : ratios) {
    if (others_speak(ratios, source.first))
      found.coverage.push_back(coverage_of(ratios, source, values));
  }
  return found;
}

}  // namespace dovetail::yardsticks
