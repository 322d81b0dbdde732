// Compares the trace of each rank with that of the first: when it begins, its steps, its sizes, its ends.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/one_run.h"

#include "base/error.h"
#include "base/statistics.h"
#include "recordings/timeline/rank_set.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace dovetail::imports {
namespace {

[[noreturn]] void refuse_runs(const RankTrace& one, const RankTrace& other,
                              const std::string& why) {
  throw InputError(one.trace.file + " and " + other.trace.file + " are of different runs: " + why +
                   "; give the files of one run");
}

std::string rank_words(const RankTrace& rank) { return "rank " + std::to_string(rank.rank); }

void compare_clocks(const RankTrace& one, const RankTrace& other) {
  constexpr std::int64_t kYear2001 = 1'000'000'000'000'000'000;  // ns since 1970
  constexpr std::int64_t kHour = 3'600'000'000'000;
  const std::int64_t a = one.trace.base_ns + one.line.origin_ns;
  const std::int64_t b = other.trace.base_ns + other.line.origin_ns;
  if (a < kYear2001 || b < kYear2001 || std::abs(b - a) <= kHour) return;
  const std::int64_t hours = (std::abs(b - a) + kHour / 2) / kHour;
  refuse_runs(one, other,
              "they begin " + std::to_string(hours) + (hours == 1 ? " hour" : " hours") + " apart");
}

// "steps 3 to 6"
std::string numbers_of(const RankTrace& rank) {
  const std::vector<TracedStep>& steps = rank.line.steps;
  return rank_words(rank) + " has steps " + std::to_string(steps.front().number) + " to " +
         std::to_string(steps.back().number);
}

void compare_steps(const RankTrace& one, const RankTrace& other) {
  const auto is_numbered = [](const RankTrace& rank) {
    return !rank.line.steps.empty() &&
           std::ranges::all_of(rank.line.steps, [](const TracedStep& step) {
             return step.name.starts_with("ProfilerStep#");
           });
  };
  if (!is_numbered(one) || !is_numbered(other)) return;
  for (const TracedStep& step : one.line.steps) {
    for (const TracedStep& theirs : other.line.steps) {
      if (step.number == theirs.number) return;
    }
  }
  refuse_runs(one, other, numbers_of(one) + ", " + numbers_of(other));
}

// By kind and members: sizes of a rank's first step that both have, rising.
using Sizes =
    std::map<std::pair<CollectiveKind, std::vector<std::int64_t>>, std::vector<std::int64_t>>;

Sizes sizes_of(const RankTrace& rank, std::int64_t world, std::size_t step) {
  Sizes sizes;
  for (const TracedCollective& collective : rank.line.collectives) {
    const GpuWork& work = rank.line.works[static_cast<std::size_t>(collective.work)];
    if (work.step != static_cast<std::int32_t>(step) || !collective.bytes) continue;
    using enum CollectiveKind;
    const bool is_even = collective.kind == AllReduce || collective.kind == ReduceScatter ||
                         collective.kind == AllGather || collective.kind == Broadcast;
    // Where the members are not told, a group of all ranks is that of all.
    const bool is_of_all = world > 0 && collective.group_size.value_or(0) == world;
    if (!is_even || (collective.members.empty() && !is_of_all)) continue;
    sizes[{collective.kind, is_of_all ? std::vector<std::int64_t>{} : collective.members}]
        .push_back(collective.bytes->count());
  }
  for (auto& [key, list] : sizes) std::ranges::sort(list);
  return sizes;
}

void compare_sizes(const RankTrace& one, const RankTrace& other, std::int64_t world) {
  if (one.line.steps.empty() || other.line.steps.empty()) return;
  const std::size_t step = std::min(one.line.steps.size(), other.line.steps.size()) - 1;
  const Sizes theirs = sizes_of(other, world, step);
  for (const auto& [key, mine] : sizes_of(one, world, step)) {
    const auto found = theirs.find(key);
    if (found == theirs.end()) continue;
    std::vector<std::int64_t> both;
    std::ranges::set_intersection(mine, found->second, std::back_inserter(both));
    if (both.size() * 2 >= std::min(mine.size(), found->second.size())) continue;
    const auto largest = [&](const RankTrace& rank, const std::vector<std::int64_t>& list) {
      return rank_words(rank) + " has " + std::to_string(list.size()) + " a step, the largest " +
             dovetail::to_string(Bytes(list.back()));
    };
    refuse_runs(one, other,
                "the " + std::string(to_string(key.first)) + "s of one group differ in size (" +
                    largest(one, mine) + "; " + largest(other, found->second) + ")");
  }
}

}  // namespace

void require_one_run(const JobTrace& job) {
  const std::int64_t world = job.world_size().value_or(0);
  const RankTrace& first = job.ranks.front();
  for (const RankTrace& rank : job.ranks) {
    if (&rank == &first) continue;
    compare_clocks(first, rank);
    compare_steps(first, rank);
    compare_sizes(first, rank, world);
  }
}

void require_one_time(const JobTrace& job) {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Duration>> apart;
  for (const MatchedCollective& matched : job.matched) {
    const RankTrace& first = job.ranks[matched.ranks.front()];
    if (first.line.on_cpu || first.is_message(matched.by_rank.front())) continue;
    apart[{matched.ranks.front(), matched.ranks.back()}].push_back(matched.end_spread);
  }
  for (auto& [ranks, spreads] : apart) {
    const RankTrace& first = job.ranks[ranks.first];
    std::vector<Duration> steps;
    for (const TracedStep& step : first.line.steps) steps.push_back(step.end - step.start);
    const Duration step = median_or(std::move(steps), Duration{});
    const Duration usual = median(std::move(spreads));
    if (usual * 2 <= step) continue;
    refuse_runs(first, job.ranks[ranks.second],
                "the same collectives end " + dovetail::to_string(usual) +
                    " apart with their clocks put together, of a step of " +
                    dovetail::to_string(step));
  }
}

}  // namespace dovetail::imports
