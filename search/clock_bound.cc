// The dynamic program over prefixes, and the search for the least limit plus losses.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/clock_bound.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <utility>

#include "base/interruption.h"

namespace dovetail::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kClasses = 3;
constexpr std::size_t kBest = kClasses;  // beside the class that a transfer leaves most
constexpr double kLeastLeft = 1.0 / 64;  // as sim/rates.h
constexpr std::size_t kFewLabels = 4;
constexpr std::size_t kManyLabels = 24;

// The compute beside transfers, as stretches of one class. Behind the last one compute may stand still.
class Stretches {
 public:
  Stretches(const ClockProblem& problem, Starts starts) {
    double at = 0;
    for (const ClockProblem::Op& op : problem.compute) {
      const bool may_wait = starts == Starts::Any || at >= problem.waits_from;
      const auto kind = static_cast<std::size_t>(op.kernel);
      at += op.time;
      (may_wait ? behind_ : before_it_)[kind] = true;
      if (may_wait) continue;
      if (kinds_.empty() || kinds_.back() != kind) {
        kinds_.push_back(kind);
        begins_.push_back(begins_.empty() ? 0 : end_);
        ops_.push_back(count_);
        before_.push_back(sum_);
      }
      sum_[kind] += op.time;
      end_ = at;
      ++count_;
    }
    kinds_.push_back(kBest);
    begins_.push_back(end_);
    ops_.push_back(count_);
    before_.push_back(sum_);
  }

  // By kind of stretch, and what they are one over.
  struct Rates {
    std::array<double, kClasses + 1> rate{}, inverse{};
  };
  // What this leaves of compute, by kind of stretch; `core`: what is left of the processor.
  [[nodiscard]] Rates rates(const std::array<double, 3>& left, double core) const {
    Rates rates{};
    double best = 0;
    for (std::size_t kind = 0; kind < kClasses; ++kind) {
      rates.rate[kind] = std::clamp(core * left[kind], kLeastLeft, 1.0);
      if (behind_[kind]) best = std::max(best, rates.rate[kind]);
    }
    rates.rate[kBest] = best > 0 ? best : 1;
    invert(rates);
    return rates;
  }
  static void invert(Rates& rates) {
    for (std::size_t kind = 0; kind <= kBest; ++kind) rates.inverse[kind] = 1 / rates.rate[kind];
  }
  // The largest of those that any compute has.
  [[nodiscard]] double best(const Rates& rates) const {
    double best = rates.rate[kBest];
    for (std::size_t kind = 0; kind < kClasses; ++kind) {
      if (before_it_[kind]) best = std::max(best, rates.rate[kind]);
    }
    return best;
  }

  struct Place {
    double position = 0;
    std::size_t stretch = 0;
  };
  [[nodiscard]] Place at(double position) const {
    const auto next = std::ranges::upper_bound(begins_, position);
    return {position, static_cast<std::size_t>(next - begins_.begin()) - 1};
  }

  // Where the clock is after this time beside a transfer.
  [[nodiscard]] Place advance(const Place& from, double time, const Rates& rates) const {
    const double start = reach(from, rates);
    std::size_t low = from.stretch;
    std::size_t high = begins_.size();  // of the stretches, the first that is not reached
    while (high - low > 1) {
      const std::size_t middle = (low + high) / 2;
      (reach({begins_[middle], middle}, rates) - start <= time ? low : high) = middle;
    }
    const Place begin = low == from.stretch ? from : Place{begins_[low], low};
    const double left = time - (reach(begin, rates) - start);
    return {begin.position + left * rates.rate[kinds_[low]], low};
  }

  // For each gradient, the least that is lost in this time beside a transfer that begins where it is ready or later. Start
  // and end move on together, from one change of class to the next.
  [[nodiscard]] std::vector<double> least_losses(
      const std::vector<ClockProblem::Gradient>& gradients, double time, const Rates& rates) const {
    std::vector<double> least(gradients.size(), kNever);
    Place from = at(gradients.front().ready);
    Place to = advance(from, time, rates);
    const std::size_t last = begins_.size() - 1;
    for (std::size_t g = 0;;) {
      const double lost = time - (to.position - from.position);
      least[g] = std::min(least[g], lost);
      while (g + 1 < least.size() && from.position >= gradients[g + 1].ready) least[++g] = lost;
      if (from.stretch == last) break;
      double next = begins_[from.stretch + 1];
      const bool is_ready = g + 1 < least.size() && gradients[g + 1].ready < next;
      if (is_ready) next = gradients[g + 1].ready;
      const double here = (next - from.position) * rates.inverse[kinds_[from.stretch]];
      const double there = to.stretch == last ? kNever
                                              : (begins_[to.stretch + 1] - to.position) *
                                                    rates.inverse[kinds_[to.stretch]];
      if (here <= there) {
        to.position += here * rates.rate[kinds_[to.stretch]];
        from = {next, from.stretch + (is_ready ? 0 : 1)};
      } else {
        from.position += there * rates.rate[kinds_[from.stretch]];
        to = {begins_[to.stretch + 1], to.stretch + 1};
      }
    }
    for (std::size_t g = least.size() - 1; g-- > 0;) least[g] = std::min(least[g], least[g + 1]);
    return least;
  }

  // Time beside a transfer from one place to another.
  [[nodiscard]] double time(const Place& from, const Place& to, const Rates& rates) const {
    return reach(to, rates) - reach(from, rates);
  }
  [[nodiscard]] std::size_t ops(const Place& from, const Place& to) const {
    return (to.stretch + 1 < ops_.size() ? ops_[to.stretch + 1] : count_) - ops_[from.stretch];
  }

 private:
  using Sums = std::array<double, kClasses>;
  // Time from the beginning, if all of it were beside one transfer.
  [[nodiscard]] double reach(const Place& place, const Rates& rates) const {
    const Sums& before = before_[place.stretch];
    const auto& inverse = rates.inverse;
    return before[0] * inverse[0] + before[1] * inverse[1] + before[2] * inverse[2] +
           (place.position - begins_[place.stretch]) * inverse[kinds_[place.stretch]];
  }

  std::vector<std::size_t> kinds_;
  std::vector<double> begins_;
  std::vector<std::size_t> ops_;  // before each
  std::vector<Sums> before_;      // of each class
  // Whether there is compute of a class: before it may stand still, and behind.
  std::array<bool, kClasses> before_it_{}, behind_{};
  double end_ = 0;
  Sums sum_{};
  std::size_t count_ = 0;
};

// What the buckets of one problem lose.
class Chain {
 public:
  // None of its buckets begins before `from`.
  Chain(const ClockProblem& problem, Starts starts, double from)
      : problem_(problem),
        from_(from),
        exact_(starts == Starts::WhenReady),
        stretches_(problem, starts),
        n_(problem.gradients.size()),
        fronts_(n_ + 1),
        rest_(n_ + 1, kNever) {
    pairs_.resize(problem.travels.size());
    for (std::size_t begin = 0; begin < n_; ++begin) {
      throw_if_interrupted();
      double tail = 0;
      for (std::size_t end = begin + 1; end <= n_; ++end) {
        tail = std::max(tail, problem.gradients[end - 1].tail);
        Pair& made = pair(begin, end);
        const auto& [isolated, queued, left, behind_all] = travel_of(made);
        made.tail = tail;
        made.least = std::max(0.0, std::min(isolated, queued) - kRounding);
        made.least_loss = made.least * (1 - best_rate(made, made.least));
        made.extra = problem.enqueue + behind_all;
        made.is_steady = exact_ ? isolated == queued : begin == 0 || isolated >= queued;
      }
    }
    if (exact_) find_least_losses();
    rest_[n_] = 0;
    for (std::size_t begin = n_; begin-- > 0;) {
      throw_if_interrupted();
      for (std::size_t end = begin + 1; end <= n_; ++end) {
        Pair& made = pair(begin, end);
        rest_[begin] = std::min(rest_[begin], rest_[end] + made.least_loss + made.extra);
        if (made.is_steady) made.from_ready = behind({}, made, begin, ready_of(end));
      }
    }
  }

  // Of any grouping.
  [[nodiscard]] double least_losses() const { return rest_[0]; }
  // What is surely enough beside compute: one bucket behind all of it.
  [[nodiscard]] double one_bucket() const {
    const ClockProblem::Travel& all = problem_.travels[pair_index(0, n_)];
    return std::max(all.isolated, all.queued) + all.behind + problem_.enqueue + 2 * kRounding;
  }
  // The least position at which the last bucket of any grouping ends.
  double least_end() {
    static_cast<void>(losses(kNever, kNever, kFewLabels));
    return std::ranges::min(fronts_[n_], {}, &Label::lo).lo;
  }
  [[nodiscard]] std::size_t work() const { return work_; }
  static constexpr std::size_t kMostWork = 600'000;

  // The least sum of losses with all ends and tails up to `most`, by fronts of so many labels; kNever where it would be
  // above `limit`.
  double losses(double most, double limit, std::size_t labels) {
    labels_ = labels;
    for (std::vector<Label>& front : fronts_) front.clear();
    fronts_[0].push_back({});
    least_.assign(n_ + 1, kNever);
    least_[0] = 0;
    for (std::size_t end = 1; end <= n_; ++end) {
      throw_if_interrupted();
      made_.clear();
      const double ready = ready_of(end);
      for (std::size_t begin = end; begin-- > 0;) {
        const Pair& bucket = pair(begin, end);
        // Enqueues of later buckets may have come before its end.
        const double later = static_cast<double>(n_ - end) * problem_.enqueue;
        if (ready + bucket.tail > most + later) break;
        if (bucket.is_steady && bucket.from_ready.lo + bucket.tail > most + later) continue;
        if (least_[begin] + bucket.least_loss + bucket.extra + rest_[end] > limit) continue;
        extend(begin, end, most, limit);
      }
      work_ += made_.size();
      thin(fronts_[end], end < n_ ? ready_of(end + 1) : kNever);
      for (const Label& label : fronts_[end]) least_[end] = std::min(least_[end], label.loss);
    }
    return least_[n_];
  }

  // Of the buckets of the last run.
  [[nodiscard]] std::vector<std::size_t> ends() const {
    std::vector<std::size_t> found;
    std::size_t end = n_;
    Label at = *std::ranges::min_element(fronts_[n_], {}, &Label::loss);
    while (end > 0) {
      found.push_back(end);
      end = at.begin;
      at = fronts_[end][at.before];
    }
    std::ranges::reverse(found);
    return found;
  }

 private:
  static constexpr double kRounding = 1;  // ns, of a transfer's time
  static constexpr int kPauses = 8;
  static constexpr double kTimesPerOctave = 256;

  struct Label {
    double lo = 0;  // of the end
    double hi = 0;
    double loss = 0;
    std::uint32_t begin = 0;   // of the last bucket
    std::uint32_t before = 0;  // its label in the front of `begin`
  };
  struct Pair {
    double tail = 0;
    double least = 0;        // time
    double least_loss = 0;   // wherever it begins
    double extra = 0;        // lost besides
    bool is_steady = false;  // it is taken to last as long behind any pause
    Label from_ready = {};   // then: if it begins when it is ready
  };
  Pair& pair(std::size_t begin, std::size_t end) { return pairs_[pair_index(begin, end)]; }
  [[nodiscard]] const ClockProblem::Travel& travel_of(const Pair& pair) const {
    return problem_.travels[static_cast<std::size_t>(&pair - pairs_.data())];
  }

  // Of the last gradient before this end.
  [[nodiscard]] double ready_of(std::size_t end) const {
    return std::max(from_, problem_.gradients[end - 1].ready);
  }

  // What a bucket loses wherever it begins behind its last gradient; for all that last about as long at once.
  void find_least_losses() {
    struct Alike {
      double time = kNever;
      Stretches::Rates rates{};
      std::vector<double> losses = {};  // behind each gradient
    };
    std::map<int, Alike> all;
    std::vector<Alike*> of;  // each pair
    for (const Pair& pair : pairs_) {
      Alike& alike = all[static_cast<int>(std::log2(std::max(1.0, pair.least)) * kTimesPerOctave)];
      of.push_back(&alike);
      const Stretches::Rates each = rates(pair, pair.least);
      alike.time = std::min(alike.time, pair.least);
      for (std::size_t kind = 0; kind <= kBest; ++kind)
        alike.rates.rate[kind] = std::max(alike.rates.rate[kind], each.rate[kind]);
    }
    for (auto& [time, alike] : all) {
      Stretches::invert(alike.rates);
      alike.losses = stretches_.least_losses(problem_.gradients, alike.time, alike.rates);
    }
    for (std::size_t end = 1; end <= n_; ++end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        const std::size_t at = pair_index(begin, end);
        pairs_[at].least_loss = std::max(pairs_[at].least_loss, of[at]->losses[end - 1]);
      }
    }
  }

  [[nodiscard]] Stretches::Rates rates(const Pair& pair, double time) const {
    const double core = time > 0 ? 1 - std::min(problem_.processor, time) / time : 1;
    return stretches_.rates(travel_of(pair).left, core);
  }
  [[nodiscard]] double best_rate(const Pair& pair, double time) const {
    return stretches_.best(rates(pair, time));
  }

  void extend(std::size_t begin, std::size_t end, double most, double limit) {
    const Pair& bucket = pair(begin, end);
    const double ready = ready_of(end);
    const auto later = static_cast<double>(n_ - end) * problem_.enqueue;
    const double enough = limit - rest_[end];
    const std::vector<Label>& front = fronts_[begin];
    const auto add = [&](Label label, std::size_t before) {
      label.begin = static_cast<std::uint32_t>(begin);
      label.before = static_cast<std::uint32_t>(before);
      const double slack = std::min(later, std::max(0.0, limit - label.loss));
      if (label.loss <= enough && label.lo + bucket.tail <= most + slack) made_.push_back(label);
    };
    std::optional<std::size_t>
        idle;  // of the labels that end before it is ready: that of the least loss
    for (std::size_t i = 0; i < front.size(); ++i) {
      if (front[i].loss + bucket.least_loss + bucket.extra > enough) continue;
      if (bucket.is_steady && front[i].hi - problem_.enqueue <= ready) {
        if (!idle || front[i].loss < front[*idle].loss) idle = i;
      } else if (exact_ || bucket.is_steady) {
        add(behind(front[i], bucket, begin, ready), i);
      } else {
        with_pauses(front[i], bucket, begin, ready, [&](const Label& label) { add(label, i); });
      }
    }
    if (!idle) return;
    Label label = bucket.from_ready;
    label.loss += front[*idle].loss;
    add(label, *idle);
  }

  // The end of a bucket that begins as soon as it can.
  Label behind(const Label& before, const Pair& bucket, std::size_t begin, double ready) const {
    if (exact_) return exact(before, bucket, begin, ready);
    const double start = std::max(before.lo - problem_.enqueue, ready);
    const double end = start + bucket.least - bucket.least_loss;
    return {.lo = end, .hi = end, .loss = before.loss + bucket.least_loss + bucket.extra};
  }

  // It begins as soon as it can, at a position between two.
  Label exact(const Label& before, const Pair& bucket, std::size_t begin, double ready) const {
    const auto time_at = [&](double end) {
      const double pause = std::max(0.0, ready - end);
      const auto& [isolated, queued, left, behind_all] = travel_of(bucket);
      return isolated < queued ? std::max(isolated, queued - pause)
                               : std::min(isolated, queued + pause);
    };
    double shortest = std::min(time_at(before.lo), time_at(before.hi));
    double longest = std::max(time_at(before.lo), time_at(before.hi));
    if (begin == 0) {
      shortest = std::min(travel_of(bucket).isolated, travel_of(bucket).queued);
      longest = std::max(travel_of(bucket).isolated, travel_of(bucket).queued);
    }
    shortest = std::max(0.0, shortest - kRounding);
    longest += 2 * kRounding;
    const Stretches::Rates rate = rates(bucket, shortest);
    const Stretches::Place from = stretches_.at(std::max(before.lo, ready));
    const Stretches::Place to = stretches_.advance(from, shortest, rate);
    Label label{.lo = to.position, .hi = 0, .loss = before.loss};
    const double loss = shortest - (to.position - from.position);
    double gain = 0;  // where it begins later
    Stretches::Place last = from;
    if (before.hi > from.position) {
      last = stretches_.at(before.hi);
      gain = stretches_.best(rate) * stretches_.time(from, last, rate) -
             (last.position - from.position);
    }
    label.loss += std::max(bucket.least_loss, loss - gain) + bucket.extra;
    label.hi = stretches_.advance(last, longest, rate).position;
    // Every op ends at a whole ns.
    label.lo =
        std::max(from.position, label.lo - static_cast<double>(stretches_.ops(from, to)) - 1);
    return label;
  }

  // It may be held back, so that a queue's longer time falls with the pause; each range of pauses by its ends.
  template <class Add>
  void with_pauses(const Label& before, const Pair& bucket, std::size_t begin, double ready,
                   const Add& add) const {
    const double ended = before.lo - problem_.enqueue;
    const double start = std::max(ended, ready);
    const auto& [isolated, queued, left, behind_all] = travel_of(bucket);
    double longest = std::min(isolated, queued);
    if (begin > 0 && isolated < queued)
      longest = std::max(isolated, queued - std::max(0.0, ready - ended));
    longest = std::max(bucket.least, longest - kRounding);
    const double range = longest - bucket.least;
    const int parts = range > kPauses * kRounding ? kPauses : 1;
    for (int part = 0; part < parts; ++part) {
      const double pause = range * part / parts;
      const double time = longest - pause;
      const double shorter = std::max(bucket.least, longest - range * (part + 1) / parts);
      const double end = start + pause + time * best_rate(bucket, time);
      const double loss = shorter * (1 - best_rate(bucket, shorter));
      add({.lo = end, .hi = end, .loss = before.loss + loss + bucket.extra});
    }
  }

  // Keeps few of the labels that were made. Ends up to `ready` are alike for all that follows.
  void thin(std::vector<Label>& front, double ready) {
    if (made_.empty()) return;
    double lo = kNever;
    double hi = 0;
    for (const Label& label : made_) {
      lo = std::min(lo, label.lo);
      hi = std::max(hi, label.lo);
    }
    lo = std::min(hi, std::max(lo, std::min(ready, kNever)));
    const double width = (hi - lo) / static_cast<double>(labels_) + 1e-9;
    cells_.assign(labels_ + 2, std::nullopt);
    for (const Label& label : made_) {
      const auto at =
          label.lo <= lo ? std::size_t{0} : static_cast<std::size_t>((label.lo - lo) / width) + 1;
      std::optional<Label>& cell = cells_[std::min(at, labels_ + 1)];
      if (!cell) {
        cell = label;
        continue;
      }
      const double least = std::min(cell->lo, label.lo);
      const double most = std::max(cell->hi, label.hi);
      if (label.loss < cell->loss) cell = label;
      cell->lo = least;
      cell->hi = most;
    }
    double best = kNever;
    for (const std::optional<Label>& cell : cells_) {
      if (!cell || (!exact_ && cell->loss >= best)) continue;
      best = std::min(best, cell->loss);
      front.push_back(*cell);
    }
  }

  const ClockProblem& problem_;
  double from_;
  bool exact_;
  Stretches stretches_;
  std::size_t n_;
  std::vector<Pair> pairs_;                 // by end, then begin
  std::vector<std::vector<Label>> fronts_;  // of each prefix
  std::vector<double> least_;               // of each front: the least loss
  std::vector<double> rest_;                // the least loss still to come behind each prefix
  std::vector<Label> made_;
  std::size_t work_ = 0;             // labels made
  std::size_t labels_ = kFewLabels;  // of a front
  std::vector<std::optional<Label>> cells_;
};

// All chains of a step.
class Solver {
 public:
  Solver(std::span<const ClockProblem> chains, const ClockOptions& options)
      : known_(options.known) {
    double buckets = 0;
    for (const ClockProblem& problem : chains) {
      const double from = chains_.empty() ? 0 : chains_.back().least_end();
      chains_.emplace_back(problem, options.starts, from);
      buckets += chains_.back().one_bucket();
      double compute = 0;
      for (const ClockProblem::Op& op : problem.compute) compute += op.time;
      compute_ = std::max(compute_, compute);
    }
    known_ = std::min(known_, compute_ / kLeastLeft + buckets);
  }

  ClockBound bound() {
    struct Interval {
      double lo, hi, losses;
      std::size_t labels = kFewLabels;
      [[nodiscard]] double least() const { return lo + losses; }
      bool operator<(const Interval& other) const { return least() > other.least(); }
    };
    std::priority_queue<Interval> open;
    const double most = std::max(compute_, known_);
    open.push({compute_, most, losses(most, known_ - compute_, kFewLabels)});
    const double narrow = std::max(2.0, 1e-6 * compute_);
    const double coarse = std::max(narrow, 3e-4 * compute_);
    for (int runs = 0; runs < kMostRuns && !is_spent(); ++runs) {
      Interval least = open.top();
      if (least.least() >= known_ || least.hi - least.lo <= narrow) break;
      open.pop();
      if (least.hi - least.lo <= coarse && least.labels == kFewLabels) {
        least.labels = kManyLabels;
        least.losses = losses(least.hi, known_ - least.lo, kManyLabels);
        open.push(least);
        continue;
      }
      const double middle = (least.lo + least.hi) / 2;
      const double under = losses(middle, known_ - least.lo, least.labels);
      open.push({least.lo, middle, under, least.labels});
      open.push({middle, least.hi, least.losses, least.labels});
    }
    const Interval& least = open.top();
    ClockBound found{.step = std::min(known_, least.least())};
    found.is_spent = is_spent();
    if (least.least() < known_ && losses(least.hi, known_ - least.lo, least.labels) < kNever)
      found.ends = chains_.front().ends();
    return found;
  }

 private:
  static constexpr int kMostRuns = 100;

  [[nodiscard]] bool is_spent() const {
    return std::ranges::any_of(chains_,
                               [](const Chain& chain) { return chain.work() >= Chain::kMostWork; });
  }

  double losses(double most, double limit, std::size_t labels) {
    double least = 0;
    for (const Chain& chain : chains_) least += chain.least_losses();
    double sum = 0;
    for (Chain& chain : chains_)
      sum += chain.losses(most, limit - least + chain.least_losses(), labels);
    return sum;
  }

  std::vector<Chain> chains_;
  double known_;
  double compute_ = 0;
};

}  // namespace

ClockBound clock_bound(std::span<const ClockProblem> chains, const ClockOptions& options) {
  return Solver(chains, options).bound();
}

}  // namespace dovetail::search
