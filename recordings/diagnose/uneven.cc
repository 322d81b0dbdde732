// Busy time of each rank by its own clock, from one matched collective to the next.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/uneven.h"

#include "traces/intervals.h"

#include <algorithm>
#include <map>

namespace dovetail::diagnose {
namespace {

class Comparison {
 public:
  explicit Comparison(const JobTrace& job) : job_(job), sum_(job.ranks.size()) {
    for (const RankTrace& rank : job.ranks) {
      std::vector<traces::Interval> busy;
      for (const GpuWork& work : rank.line.works) {
        if (work.collective == kNone && !work.is_aside) busy.push_back({work.start, work.end});
      }
      busy_.push_back(traces::union_of(std::move(busy)));
    }
  }

  std::optional<Uneven> compare() {
    std::map<std::vector<std::size_t>, const MatchedCollective*> before;
    for (const MatchedCollective& matched : job_.matched) {
      const TracedCollective& one = collective(matched, 0);
      if (job_.ranks[matched.ranks[0]].is_message(matched.by_rank[0])) continue;
      const MatchedCollective*& last = before[matched.ranks];
      add(matched, last != nullptr && last->step == matched.step ? last : nullptr,
          one.kind == CollectiveKind::AllToAll);
      last = &matched;
    }
    return told();
  }

 private:
  [[nodiscard]] const TracedCollective& collective(const MatchedCollective& matched,
                                                   std::size_t i) const {
    return job_.ranks[matched.ranks[i]]
        .line.collectives[static_cast<std::size_t>(matched.by_rank[i])];
  }
  [[nodiscard]] Instant start_of(const MatchedCollective& matched, std::size_t i) const {
    return job_.ranks[matched.ranks[i]]
        .line.works[static_cast<std::size_t>(collective(matched, i).work)]
        .start;
  }

  void add(const MatchedCollective& matched, const MatchedCollective* before, bool is_all_to_all) {
    Duration most{};
    Duration all{};
    for (std::size_t i = 0; i < matched.ranks.size(); ++i) {
      const std::size_t r = matched.ranks[i];
      const Instant begin = before != nullptr ? start_of(*before, i)
                                              : first_work(job_.ranks[r].line,
                                                           static_cast<std::size_t>(matched.step));
      const traces::Interval stretch{std::min(begin, start_of(matched, i)), start_of(matched, i)};
      const Duration busy = stretch.length() - traces::uncovered(stretch, busy_[r]);
      sum_[r] += busy;
      most = std::max(most, busy);
      all += busy;
    }
    const Duration gain = most - all / std::ssize(matched.ranks);
    gain_ += gain * std::ssize(matched.ranks);
    if (is_all_to_all) of_all_to_alls_ += gain * std::ssize(matched.ranks);
  }

  [[nodiscard]] static Instant first_work(const imports::RankTimeline& line, std::size_t step) {
    Instant first = Instant::max();
    for (const std::int32_t number : line.steps[step].works) {
      const GpuWork& work = line.works[static_cast<std::size_t>(number)];
      if (work.collective == kNone && !work.is_aside) first = std::min(first, work.start);
    }
    return first;
  }

  [[nodiscard]] std::optional<Uneven> told() const {
    Duration time{};
    for (const RankTrace& rank : job_.ranks) {
      for (const TracedStep& step : rank.line.steps) time += step.end - step.start;
    }
    // What is uneven and hidden makes nobody wait.
    const Duration waited = std::min(gain_, job_.waiting_time);
    if (waited * 50 < time || gain_ * 2 < job_.waiting_time) return std::nullopt;
    const auto ranks = std::ssize(job_.ranks);
    const auto steps = std::max<std::int64_t>(1, std::ssize(job_.ranks.front().line.steps));
    Uneven found;
    found.of_experts = of_all_to_alls_ * 2 > gain_;
    found.gain = waited / (ranks * steps);
    Duration mean{};
    for (const Duration& sum : sum_) mean += sum / ranks;
    for (std::size_t r = 0; r < sum_.size(); ++r) {
      found.ranks.push_back({job_.ranks[r].rank, sum_[r] / steps,
                             static_cast<double>(sum_[r].count()) /
                                 static_cast<double>(std::max<std::int64_t>(1, mean.count()))});
    }
    std::ranges::stable_sort(found.ranks, std::ranges::greater{}, &UnevenRank::compute);
    constexpr double kMore = 1.05;
    found.is_always_the_same = found.ranks.front().times >= kMore;
    return found;
  }

  const JobTrace& job_;
  std::vector<std::vector<traces::Interval>> busy_;  // by rank
  std::vector<Duration> sum_;                        // by rank
  Duration gain_{}, of_all_to_alls_{};               // of all ranks and steps
};

}  // namespace

std::optional<Uneven> uneven_work(const JobTrace& job) {
  if (job.ranks.size() < 2 || job.matched.empty()) return std::nullopt;
  return Comparison(job).compare();
}

}  // namespace dovetail::diagnose
