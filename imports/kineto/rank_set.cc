// Matches the collectives of all ranks of a job by their order, puts the ranks' clocks together,
// and takes the wait for the last rank out of each collective's time.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/kineto/rank_set.h"

#include "base/error.h"
#include "base/statistics.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace dovetail::imports {
namespace {

const GpuWork& work_of(const RankTrace& rank, std::int32_t collective) {
  const TracedCollective& c = rank.line.collectives[static_cast<std::size_t>(collective)];
  return rank.line.works[static_cast<std::size_t>(c.work)];
}

// One place in the sequence of collectives, the same on every rank and in every step.
using Place = std::tuple<CollectiveKind, std::string, std::int64_t, std::int32_t>;

// The collectives of each rank, by step and place.
std::map<std::pair<std::int32_t, Place>, std::int32_t> places_of(const RankTimeline& line) {
  std::map<std::pair<std::int32_t, Place>, std::int32_t> places;
  std::map<std::tuple<std::int32_t, CollectiveKind, std::string, std::int64_t>, std::int32_t> seen;
  for (std::size_t c = 0; c < line.collectives.size(); ++c) {
    const TracedCollective& collective = line.collectives[c];
    const std::int32_t step = line.works[static_cast<std::size_t>(collective.work)].step;
    if (step == kNone) continue;
    const std::int64_t elements = collective.elements.value_or(0);
    // Sizes of all-to-alls may differ between ranks.
    const bool sized = collective.kind == CollectiveKind::AllReduce;
    auto& number = seen[{step, collective.kind, collective.group, sized ? elements : 0}];
    places[{step, Place(collective.kind, collective.group, sized ? elements : 0, number)}] =
        static_cast<std::int32_t>(c);
    ++number;
  }
  return places;
}

// One rank: the shortest duration over the steps at the same place.
void transfer_over_steps(RankTrace& rank) {
  std::map<Place, Duration> shortest;
  const auto places = places_of(rank.line);
  for (const auto& [key, c] : places) {
    const GpuWork& work = work_of(rank, c);
    const auto [entry, added] = shortest.emplace(key.second, work.end - work.start);
    if (!added) entry->second = std::min(entry->second, work.end - work.start);
  }
  rank.transfer.clear();
  for (const TracedCollective& collective : rank.line.collectives) {
    const GpuWork& work = rank.line.works[static_cast<std::size_t>(collective.work)];
    rank.transfer.push_back(work.end - work.start);
  }
  for (const auto& [key, c] : places) {
    rank.transfer[static_cast<std::size_t>(c)] = shortest.at(key.second);
  }
}

class Matcher {
 public:
  explicit Matcher(JobTrace& job) : job_(job), reason_(job.ranks.size()) {}

  void match() {
    pair_up();
    align_clocks();
    for (MatchedCollective& matched : job_.matched) measure(matched);
    std::ranges::sort(job_.matched, {}, [&](const MatchedCollective& m) {
      return absolute(0, work_of(job_.ranks[0], m.by_rank[0]).start);
    });
    for (std::size_t i = 0; i < job_.matched.size(); ++i) {
      name_the_reason(job_.matched[i], i == 0 ? nullptr : &job_.matched[i - 1]);
    }
  }

 private:
  [[nodiscard]] std::int64_t absolute(std::size_t rank, Instant at) const {
    const RankTrace& r = job_.ranks[rank];
    return r.trace.base_ns + r.line.origin_ns + (at.time_since_epoch() + r.clock_offset).count();
  }

  void pair_up() {
    std::vector<std::map<std::pair<std::int32_t, Place>, std::int32_t>> places;
    for (const RankTrace& rank : job_.ranks) places.push_back(places_of(rank.line));
    std::size_t lone = 0;
    for (const auto& [key, first] : places.front()) {
      MatchedCollective matched;
      matched.step = key.first;
      for (const auto& of_rank : places) {
        const auto found = of_rank.find(key);
        if (found != of_rank.end()) matched.by_rank.push_back(found->second);
      }
      if (matched.by_rank.size() == job_.ranks.size()) {
        job_.matched.push_back(std::move(matched));
      } else {
        ++lone;
      }
    }
    if (lone > 0) {
      job_.unknowns.push_back(std::to_string(lone) + " collectives of rank " +
                              std::to_string(job_.ranks.front().rank) +
                              " have no partner on some other rank given");
    }
  }

  void align_clocks() {
    for (std::size_t r = 1; r < job_.ranks.size(); ++r) {
      std::vector<Duration> off;
      for (const MatchedCollective& matched : job_.matched) {
        off.emplace_back(absolute(0, work_of(job_.ranks[0], matched.by_rank[0]).end) -
                         absolute(r, work_of(job_.ranks[r], matched.by_rank[r]).end));
      }
      job_.ranks[r].clock_offset = median_or(std::move(off), Duration{});
    }
  }

  void measure(MatchedCollective& matched) {
    std::int64_t first_start = 0;
    std::int64_t last_start = 0;
    std::int64_t first_end = 0;
    std::int64_t last_end = 0;
    std::vector<Duration> starts;
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      const GpuWork& work = work_of(job_.ranks[r], matched.by_rank[r]);
      const Duration duration = work.end - work.start;
      const std::int64_t start = absolute(r, work.start);
      const std::int64_t end = absolute(r, work.end);
      matched.total += duration;
      if (r == 0 || duration < matched.transfer) matched.transfer = duration;
      if (r == 0 || start > last_start) {
        last_start = start;
        matched.late_rank = r;
      }
      first_start = r == 0 ? start : std::min(first_start, start);
      first_end = r == 0 ? end : std::min(first_end, end);
      last_end = r == 0 ? end : std::max(last_end, end);
      starts.emplace_back(start);
    }
    matched.waiting = matched.total - matched.transfer * static_cast<std::int64_t>(starts.size());
    matched.start_spread = Duration(last_start - first_start);
    matched.end_spread = Duration(last_end - first_end);
    matched.late_by = Duration(last_start) - median_or(std::move(starts), Duration{});
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      job_.ranks[r].transfer[static_cast<std::size_t>(matched.by_rank[r])] = matched.transfer;
    }
  }

  struct Window {
    std::int64_t from = 0, to = 0;  // of the trace's own clock, on the host
  };

  // From the launch of the collective before to that of this one.
  [[nodiscard]] Window window(std::size_t r, const MatchedCollective& matched,
                              const MatchedCollective* before) const {
    const RankTrace& rank = job_.ranks[r];
    const auto launched = [&](const MatchedCollective& m) {
      const GpuWork& work = work_of(rank, m.by_rank[r]);
      const Instant at = work.launch == kNone
                             ? work.start
                             : rank.line.calls[static_cast<std::size_t>(work.launch)].start;
      return rank.line.origin_ns + at.time_since_epoch().count();
    };
    const TracedStep& step = rank.line.steps[static_cast<std::size_t>(matched.step)];
    const std::int64_t begin = rank.line.origin_ns + step.start.time_since_epoch().count();
    return {before == nullptr || before->step != matched.step ? begin : launched(*before),
            launched(matched)};
  }

  // Time per name of operators, annotations and runtime calls in the window.
  static std::map<std::string_view, Duration> time_by_name(const RankTrace& rank, Window window) {
    std::map<std::string_view, Duration> time;
    // What began long before encloses the window on every rank alike.
    const std::int64_t from = window.from - (window.to - window.from) - 10'000'000;
    auto first = std::ranges::lower_bound(rank.trace.events, from, {}, &TraceEvent::start_ns);
    for (; first != rank.trace.events.end(); ++first) {
      const TraceEvent& event = *first;
      if (event.start_ns >= window.to) break;
      const bool host = event.kind == EventKind::Operator || event.kind == EventKind::Annotation ||
                        event.kind == EventKind::RuntimeCall;
      if (!host || event.end_ns() <= window.from) continue;
      const std::string_view name = rank.trace.name_of(event);
      if (name.starts_with("ProfilerStep#")) continue;
      time[name] +=
          Duration(std::min(event.end_ns(), window.to) - std::max(event.start_ns, window.from));
    }
    return time;
  }

  // How much later than the median of the others this rank launched a collective; without one, began
  // its step.
  [[nodiscard]] Duration lateness(std::size_t rank, std::int32_t step,
                                  const MatchedCollective* matched) const {
    const auto moment = [&](std::size_t r) {
      const RankTrace& of = job_.ranks[r];
      Instant at = of.line.steps[static_cast<std::size_t>(step)].start;
      if (matched != nullptr) {
        const GpuWork& work = work_of(of, matched->by_rank[r]);
        at = work.launch == kNone ? work.start
                                  : of.line.calls[static_cast<std::size_t>(work.launch)].start;
      }
      return Duration(absolute(r, at));
    };
    std::vector<Duration> others;
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      if (r != rank) others.push_back(moment(r));
    }
    return moment(rank) - median_or(std::move(others), Duration{});
  }

  // A rank that was as late before has not become late here: its reason is the earlier one.
  bool carried_over(MatchedCollective& matched, const MatchedCollective* before) {
    const bool same_step = before != nullptr && before->step == matched.step;
    const std::size_t rank = matched.late_rank;
    const Duration now = lateness(rank, matched.step, &matched);
    const Duration earlier = lateness(rank, matched.step, same_step ? before : nullptr);
    if (earlier * 2 < now) return false;
    if (!same_step) reason_[rank] = "the beginning of its step (what came before is another step)";
    matched.late_with = reason_[rank];
    return true;
  }

  void name_the_reason(MatchedCollective& matched, const MatchedCollective* before) {
    if (job_.ranks.size() < 2 || matched.late_by <= Duration{}) return;
    if (carried_over(matched, before)) return;
    find_reason(matched, before);
    if (!matched.late_with.empty()) reason_[matched.late_rank] = matched.late_with;
  }

  void find_reason(MatchedCollective& matched, const MatchedCollective* before) const {
    std::vector<std::map<std::string_view, Duration>> others;
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      if (r == matched.late_rank) continue;
      others.push_back(time_by_name(job_.ranks[r], window(r, matched, before)));
    }
    const RankTrace& late = job_.ranks[matched.late_rank];
    const auto own = time_by_name(late, window(matched.late_rank, matched, before));
    std::vector<std::pair<Duration, std::string_view>> excess;
    for (const auto& [name, time] : own) {
      std::vector<Duration> theirs;
      for (const auto& other : others) {
        const auto found = other.find(name);
        theirs.push_back(found == other.end() ? Duration{} : found->second);
      }
      const Duration more = time - median_or(std::move(theirs), Duration{});
      if (more * 4 >= matched.late_by) excess.emplace_back(more, name);
    }
    if (excess.empty()) return;
    // What encloses the reason has as much excess: among those near the most, the rarest and innermost,
    // which took least time in all.
    const Duration most = std::ranges::max_element(excess)->first;
    const std::pair<Duration, std::string_view>* best = nullptr;
    for (const auto& entry : excess) {
      if (entry.first * 10 < most * 9) continue;
      if (best == nullptr || own.at(entry.second) < own.at(best->second)) best = &entry;
    }
    matched.late_with = best->second;
  }

  JobTrace& job_;
  std::vector<std::string> reason_;  // by rank: what made it late last
};

void check_one_job(const JobTrace& job) {
  std::set<std::int64_t> seen;
  for (const RankTrace& rank : job.ranks) {
    if (!seen.insert(rank.rank).second) {
      throw InputError(rank.trace.file + ": rank " + std::to_string(rank.rank) +
                       " stands in another file too; give each rank once");
    }
    const auto& world = rank.trace.world_size;
    const auto& first = job.ranks.front().trace.world_size;
    if (world && first && *world != *first) {
      throw InputError(rank.trace.file + ": a job of " + std::to_string(*world) + " ranks, but " +
                       job.ranks.front().trace.file + " is of " + std::to_string(*first));
    }
  }
}

}  // namespace

std::int64_t JobTrace::world_size() const {
  std::int64_t world = static_cast<std::int64_t>(ranks.size());
  for (const RankTrace& rank : ranks) {
    if (rank.trace.world_size) return std::max(world, *rank.trace.world_size);
    for (const TracedCollective& collective : rank.line.collectives) {
      world = std::max(world, collective.group_size.value_or(0));
    }
  }
  return world;
}

JobTrace make_job(std::vector<KinetoTrace> traces, const JobOptions& options) {
  JobTrace job;
  for (KinetoTrace& trace : traces) {
    RankTrace rank;
    rank.line = join(trace, options.join);
    rank.rank = trace.rank.value_or(static_cast<std::int64_t>(job.ranks.size()));
    rank.trace = std::move(trace);
    job.ranks.push_back(std::move(rank));
  }
  check_one_job(job);
  std::ranges::sort(job.ranks, {}, &RankTrace::rank);
  for (RankTrace& rank : job.ranks) transfer_over_steps(rank);
  if (job.ranks.size() > 1) Matcher(job).match();
  for (const RankTrace& rank : job.ranks) {
    for (std::size_t c = 0; c < rank.line.collectives.size(); ++c) {
      const GpuWork& work = work_of(rank, static_cast<std::int32_t>(c));
      job.collective_time += work.end - work.start;
      job.waiting_time += work.end - work.start - rank.transfer[c];
    }
  }
  if (job.ranks.size() == 1 && job.world_size() > 1) {
    job.unknowns.emplace_back(
        "one rank's trace only: which rank was waited for, and more than an upper bound of what "
        "collectives cost by themselves; give the traces of all ranks");
  }
  return job;
}

JobTrace load_job(const std::vector<std::string>& files, const JobOptions& options) {
  std::vector<KinetoTrace> traces;
  for (const std::string& file : files) traces.push_back(read_kineto(file, options.limits));
  return make_job(std::move(traces), options);
}

}  // namespace dovetail::imports
