// Climbs from given placements by moves at single buckets, round after round, until no move helps
// or the limit of candidates is reached.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/local_search.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/random.h"

namespace dovetail::search {
namespace {

constexpr std::array kDistances = {1, 2, 4, 8, 16};
constexpr std::array kDelays = {1, 2, 4, 8, 16, 32};

struct HashOfChoices {
  std::size_t operator()(const Choices& choices) const {
    std::uint64_t hash = choices.size();
    for (const BucketChoice& choice : choices) {
      hash = splitmix64(hash ^ (static_cast<std::uint64_t>(choice.end) << 32U) ^
                        static_cast<std::uint64_t>(choice.launch));
    }
    return static_cast<std::size_t>(hash);
  }
};

class Climb {
 public:
  Climb(const StepModel& model, const LocalSearchOptions& options)
      : model_(model), options_(options), workspace_(model.workspace()) {}

  // Climbs until no move at any bucket helps.
  void from(Placed start) {
    current_ = std::move(start.choices);
    best_ = start.step;
    regroups_ = options_.moves == Moves::Groupings;
    std::size_t in_vain = 0;  // buckets in a row
    for (std::size_t b = 0; in_vain < current_.size() && !spent(); ++b) {
      if (b >= current_.size()) b = 0;
      in_vain = improve(b) ? 0 : in_vain + 1;
    }
  }

  // The choices with their step.
  Placed weighed(Choices choices) {
    trial_ = std::move(choices);
    const auto known = known_.find(trial_);
    const Duration step = known != known_.end() ? known->second : evaluate();
    return {trial_, step};
  }

  [[nodiscard]] bool spent() const { return evaluations_ >= options_.evaluations; }
  [[nodiscard]] Placed found() const { return {current_, best_}; }
  [[nodiscard]] std::int64_t evaluations() const { return evaluations_; }

 private:
  // All moves at one bucket, until one helps.
  bool improve(std::size_t b) {
    if (options_.moves == Moves::Delays && delay(b)) {
      regroups_ = true;
      return true;
    }
    return regroups_ && (merge(b) || move_border(b) || split(b));
  }

  // The bucket of the same kind whose gradients follow; mostly the next one.
  [[nodiscard]] std::optional<std::size_t> next_to(std::size_t b) const {
    const std::int32_t end = current_[b].end;
    if (end == model_.gradients() || model_.kind(current_[b].begin) != model_.kind(end))
      return std::nullopt;
    const auto from = current_.begin() + static_cast<std::ptrdiff_t>(b) + 1;
    const auto next = std::find_if(from, current_.end(),
                                   [&](const BucketChoice& other) { return other.begin == end; });
    if (next == current_.end()) return std::nullopt;
    return static_cast<std::size_t>(next - current_.begin());
  }

  enum class Accepts { Shorter, Equal };
  // Whether the trial is better; then it becomes the current one.
  bool accept(Accepts accepts) {
    const auto known = known_.find(trial_);
    if (known == known_.end() && spent()) return false;
    const Duration step = known != known_.end() ? known->second : evaluate();
    if (step > best_ || (step == best_ && accepts == Accepts::Shorter)) return false;
    std::swap(current_, trial_);
    best_ = step;
    return true;
  }

  Duration evaluate() {
    ++evaluations_;
    const Duration step = model_.evaluate(trial_, workspace_);
    known_.emplace(trial_, step);
    return step;
  }

  bool merge(std::size_t b) {
    const std::optional<std::size_t> next = next_to(b);
    if (!next) return false;
    trial_ = current_;
    trial_[b].end = trial_[*next].end;
    trial_[b].launch = kWhenReady;
    trial_[*next] = trial_[b];
    trial_.erase(trial_.begin() + static_cast<std::ptrdiff_t>(b));
    return accept(Accepts::Equal);
  }

  bool move_border(std::size_t b) {
    const std::optional<std::size_t> next = next_to(b);
    if (!next) return false;
    for (const std::int32_t distance : kDistances) {
      for (const std::int32_t by : {-distance, distance}) {
        const std::int32_t border = current_[b].end + by;
        if (border <= current_[b].begin || border >= current_[*next].end) continue;
        trial_ = current_;
        trial_[b].end = trial_[*next].begin = border;
        if (accept(Accepts::Shorter)) return true;
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
      if (accept(Accepts::Shorter)) return true;
    }
    return false;
  }

  bool delay(std::size_t b) {
    if (current_[b].launch != kWhenReady) {
      trial_ = current_;
      trial_[b].launch = kWhenReady;
      if (accept(Accepts::Equal)) return true;
    }
    const std::int32_t from = std::max(current_[b].launch, model_.ready(current_[b].end - 1));
    for (const std::int32_t by : kDelays) {
      if (from + by > model_.backward_end()) break;
      trial_ = current_;
      trial_[b].launch = from + by;
      if (accept(Accepts::Shorter)) return true;
    }
    return false;
  }

  const StepModel& model_;
  const LocalSearchOptions& options_;
  StepWorkspace workspace_;
  Choices current_, trial_;
  std::unordered_map<Choices, Duration, HashOfChoices> known_;  // climbs meet
  Duration best_{};
  bool regroups_ = true;
  std::int64_t evaluations_ = 0;
};

}  // namespace

namespace {

// Whether they are buckets of one kind in gradient order.
bool can_recount(const StepModel& model, const Choices& choices) {
  std::int32_t next = 0;
  for (const BucketChoice& choice : choices) {
    if (choice.begin != next || choice.skip > 0 || choice.take > 0 || choice.batch) return false;
    next = choice.end;
  }
  return model.kind(0) == model.kind(model.gradients() - 1) && next == model.gradients();
}

std::vector<std::size_t> ends_of(const Choices& choices) {
  std::vector<std::size_t> ends;
  for (const BucketChoice& choice : choices) ends.push_back(static_cast<std::size_t>(choice.end));
  return ends;
}

// As the first, launched when ready.
Choices with_ends(const Choices& like, const std::vector<std::size_t>& ends) {
  Choices all;
  std::int32_t begin = 0;
  for (const std::size_t end : ends) {
    all.push_back(like.front());
    all.back().launch = kWhenReady;
    all.back().begin = begin;
    all.back().end = begin = static_cast<std::int32_t>(end);
  }
  return all;
}

}  // namespace

std::vector<std::size_t> resampled(std::span<const std::size_t> ends, std::size_t count) {
  std::vector<std::size_t> all;
  for (std::size_t i = 1; i <= count; ++i) {
    const std::size_t scaled = i * ends.size();  // in buckets of `ends`, times count
    const std::size_t whole = scaled / count;
    const std::size_t from = whole == 0 ? 0 : ends[whole - 1];
    const std::size_t to = whole < ends.size() ? ends[whole] : from;
    const std::size_t end = from + (to - from) * (scaled % count) / count;
    const std::size_t least = (all.empty() ? 0 : all.back()) + 1;
    all.push_back(std::clamp(end, least, ends.back() - (count - i)));
  }
  return all;
}

std::vector<std::size_t> counts_near(std::size_t count, std::size_t most) {
  std::vector<std::size_t> all;
  for (const std::size_t by : {std::size_t{1}, count / 4, count / 2}) {
    if (by == 0 || (!all.empty() && by == 1)) continue;
    if (count > by) all.push_back(count - by);
    if (count + by <= most) all.push_back(count + by);
  }
  return all;
}

LocalSearchResult local_search(const StepModel& model, std::vector<Placed> starts,
                               const LocalSearchOptions& options) {
  std::ranges::stable_sort(starts, {}, &Placed::step);
  LocalSearchResult result{.best = starts.front()};
  Climb climb(model, options);
  const auto improves_from = [&](Placed start) {
    climb.from(std::move(start));
    const bool is_better = climb.found().step < result.best.step;
    if (is_better) result.best = climb.found();
    return is_better;
  };
  for (std::size_t i = 0; i < std::min(options.climbs, starts.size()) && !climb.spent(); ++i) {
    improves_from(std::move(starts[i]));
  }
  // Another number of buckets, until none of those near the best one is better.
  bool is_better = options.moves == Moves::Groupings && can_recount(model, result.best.choices);
  while (is_better && !climb.spent() && result.best.step > options.enough) {
    is_better = false;
    const Choices from = result.best.choices;
    for (const std::size_t count : counts_near(from.size(), ends_of(from).back())) {
      if (climb.spent()) break;
      is_better = improves_from(climb.weighed(with_ends(from, resampled(ends_of(from), count)))) ||
                  is_better;
    }
  }
  result.evaluations = climb.evaluations();
  return result;
}

}  // namespace dovetail::search
