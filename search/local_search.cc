// Rounds over buckets and their moves.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/local_search.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace dovetail::search {
namespace {

constexpr std::array kDistances = {1, 2, 4, 8, 16};
constexpr std::array kDelays = {1, 2, 4, 8, 16, 32};

class Climb {
 public:
  Climb(const StepModel& model, const LocalSearchOptions& options)
      : model_(model), options_(options), workspace_(model.workspace()) {}

  // The step of a start; nothing where it cannot be evaluated.
  std::optional<sim::StepSummary> evaluate(const Choices& choices) {
    ++evaluations_;
    return model_.evaluate(choices, workspace_);
  }

  // Climbs to where no move helps.
  void from(Choices start, const sim::StepSummary& summary) {
    current_ = std::move(start);
    best_ = summary;
    static_cast<void>(model_.settle(current_, workspace_));
    for (bool better = true; better && !spent();) {
      better = false;
      for (std::size_t b = 0; b < current_.size() && !spent(); ++b) {
        if (improve(b)) better = true;
      }
    }
  }

  [[nodiscard]] bool spent() const { return evaluations_ >= options_.evaluations; }
  [[nodiscard]] const Choices& choices() const { return current_; }
  [[nodiscard]] const sim::StepSummary& summary() const { return best_; }
  [[nodiscard]] std::int64_t evaluations() const { return evaluations_; }

 private:
  // All moves at one bucket, until one helps.
  bool improve(std::size_t b) {
    if (merge(b) || move_border(b) || split(b)) return true;
    if (options_.delays && delay(b)) return true;
    if (options_.waits && change_wait(b)) return true;
    return options_.orders && swap(b);
  }

  [[nodiscard]] bool adjacent(std::size_t b) const {
    return b + 1 < current_.size() && current_[b].end == current_[b + 1].begin;
  }

  // Whether the trial, which differs from bucket b on, is better; then it becomes the current one.
  bool accept(std::size_t b, bool equal_is_better) {
    if (spent()) return false;
    ++evaluations_;
    const auto found = model_.evaluate_change(trial_, b, workspace_);
    if (!found) return false;
    const bool better =
        found->step_ns < best_.step_ns || (equal_is_better && found->step_ns == best_.step_ns);
    if (!better) return false;
    std::swap(current_, trial_);
    best_ = *found;
    static_cast<void>(model_.settle(current_, workspace_));
    return true;
  }

  bool merge(std::size_t b) {
    if (!adjacent(b)) return false;
    trial_ = current_;
    trial_[b].end = trial_[b + 1].end;
    trial_[b].launch = kWhenReady;
    trial_.erase(trial_.begin() + static_cast<std::ptrdiff_t>(b) + 1);
    return accept(b, true);
  }

  bool move_border(std::size_t b) {
    if (!adjacent(b)) return false;
    for (const std::int32_t distance : kDistances) {
      for (const std::int32_t by : {-distance, distance}) {
        const std::int32_t border = current_[b].end + by;
        if (border <= current_[b].begin || border >= current_[b + 1].end) continue;
        trial_ = current_;
        trial_[b].end = trial_[b + 1].begin = border;
        if (accept(b, false)) return true;
      }
    }
    return false;
  }

  bool split(std::size_t b) {
    const std::int32_t begin = current_[b].begin;
    const std::int32_t size = current_[b].end - begin;
    std::int32_t last = begin;
    for (const std::int32_t quarters : {1, 2, 3}) {
      const std::int32_t border = begin + size * quarters / 4;
      if (border <= last) continue;
      last = border;
      trial_ = current_;
      BucketChoice second = trial_[b];
      trial_[b].end = second.begin = border;
      trial_[b].launch = kWhenReady;
      trial_.insert(trial_.begin() + static_cast<std::ptrdiff_t>(b) + 1, second);
      if (accept(b, false)) return true;
    }
    return false;
  }

  bool delay(std::size_t b) {
    if (current_[b].launch != kWhenReady) {
      trial_ = current_;
      trial_[b].launch = kWhenReady;
      if (accept(b, true)) return true;
    }
    const std::int32_t from = std::max(current_[b].launch, model_.ready(current_[b].end - 1));
    for (const std::int32_t by : kDelays) {
      if (from + by > model_.backward_end()) break;
      trial_ = current_;
      trial_[b].launch = from + by;
      if (accept(b, false)) return true;
    }
    return false;
  }

  bool change_wait(std::size_t b) {
    using schedule::WaitPoint;
    trial_ = current_;
    const bool first_use = trial_[b].wait == WaitPoint::FirstUse;
    trial_[b].wait = first_use ? WaitPoint::EndOfBackward : WaitPoint::FirstUse;
    return accept(b, false);
  }

  bool swap(std::size_t b) {
    if (b + 1 >= current_.size()) return false;
    trial_ = current_;
    std::swap(trial_[b], trial_[b + 1]);
    return accept(b, false);
  }

  const StepModel& model_;
  const LocalSearchOptions& options_;
  StepWorkspace workspace_;
  Choices current_, trial_;
  sim::StepSummary best_;
  std::int64_t evaluations_ = 0;
};

}  // namespace

std::optional<LocalSearchResult> local_search(const StepModel& model, std::vector<Choices> starts,
                                              const LocalSearchOptions& options) {
  struct Start {
    Choices choices;
    sim::StepSummary summary;
  };
  Climb climb(model, options);
  std::vector<Start> ranked;
  for (Choices& start : starts) {
    const bool known =
        std::ranges::any_of(ranked, [&](const Start& other) { return other.choices == start; });
    if (known) continue;
    if (const auto summary = climb.evaluate(start)) ranked.push_back({std::move(start), *summary});
  }
  if (ranked.empty()) return std::nullopt;
  std::ranges::stable_sort(ranked, {}, [](const Start& start) { return start.summary.step_ns; });
  LocalSearchResult best{.choices = ranked.front().choices, .summary = ranked.front().summary};
  for (std::size_t i = 0; i < std::min(options.climbs, ranked.size()) && !climb.spent(); ++i) {
    climb.from(std::move(ranked[i].choices), ranked[i].summary);
    if (i > 0 && climb.summary().step_ns >= best.summary.step_ns) continue;
    best.choices = climb.choices();
    best.summary = climb.summary();
  }
  best.evaluations = climb.evaluations();
  return best;
}

}  // namespace dovetail::search
