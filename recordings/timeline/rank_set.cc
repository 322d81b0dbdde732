// Matches the collectives of all ranks of a job by their order, puts the ranks' clocks together,
// and takes the wait for the last rank out of each collective's time.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/rank_set.h"

#include "base/count.h"
#include "base/error.h"
#include "base/statistics.h"
#include "recordings/timeline/one_run.h"

#include <algorithm>
#include <map>
#include <optional>
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

// A group is its members; where they are not known, its name.
using Group = std::pair<std::vector<std::int64_t>, std::string>;

// A message is one of its two ranks: what one sends the other receives.
Group group_of(const RankTrace& rank, const TracedCollective& collective) {
  const Message& message = collective.message;
  if (message.peer && rank.trace.rank) {
    const bool sends = message.direction == Direction::Send;
    const std::int64_t from = sends ? rank.rank : *message.peer;
    const std::int64_t to = sends ? *message.peer : rank.rank;
    return {{std::min(from, to), std::max(from, to)}, from < to ? "to the higher" : "to the lower"};
  }
  if (!collective.members.empty()) return {collective.members, {}};
  return {{}, collective.group};
}

// One place in the sequence of collectives, the same on every rank of the group and in every step.
using Place = std::tuple<CollectiveKind, Group, std::int64_t, std::int32_t>;

// The collectives of each rank, by step and place.
std::map<std::pair<std::int32_t, Place>, std::int32_t> places_of(const RankTrace& rank) {
  const RankTimeline& line = rank.line;
  std::map<std::pair<std::int32_t, Place>, std::int32_t> places;
  std::map<std::tuple<std::int32_t, CollectiveKind, Group, std::int64_t>, std::int32_t> seen;
  for (std::size_t c = 0; c < line.collectives.size(); ++c) {
    const TracedCollective& collective = line.collectives[c];
    const std::int32_t step = line.works[static_cast<std::size_t>(collective.work)].step;
    if (step == kNone) continue;
    const std::int64_t elements = collective.elements.value_or(0);
    // Sizes of all-to-alls may differ between ranks.
    const bool sized = collective.kind == CollectiveKind::AllReduce;
    const Group group = group_of(rank, collective);
    auto& number = seen[{step, collective.kind, group, sized ? elements : 0}];
    places[{step, Place(collective.kind, group, sized ? elements : 0, number)}] =
        static_cast<std::int32_t>(c);
    ++number;
  }
  return places;
}

// A barrier takes no time by itself.
Duration own_time(const RankTrace& rank, std::int32_t collective) {
  const TracedCollective& c = rank.line.collectives[static_cast<std::size_t>(collective)];
  if (c.kind == CollectiveKind::Barrier) return {};
  const GpuWork& work = work_of(rank, collective);
  return work.end - work.start;
}

// One rank: the shortest duration over the steps at the same place; of a message or an all-to-all, over all of its size. A
// stage of a pipeline, and a rank with fewer tokens, wait at the same places in every step.
void transfer_over_steps(RankTrace& rank) {
  rank.transfer.clear();
  for (std::int32_t c = 0; c < std::ssize(rank.line.collectives); ++c) {
    rank.transfer.push_back(own_time(rank, c));
  }
  const auto places = places_of(rank);
  const auto keep_least = [&](std::map<Place, Duration>& least, const Place& place, Duration own) {
    const auto [entry, added] = least.emplace(place, own);
    if (!added) entry->second = std::min(entry->second, own);
  };
  const auto of_size = [&](std::int32_t c) -> std::optional<Place> {
    const TracedCollective& collective = rank.line.collectives[static_cast<std::size_t>(c)];
    const bool is_exchange = collective.kind == CollectiveKind::AllToAll;
    const bool is_message = collective.kind == CollectiveKind::SendReceive;
    if (!(is_exchange || is_message) || !collective.bytes) return std::nullopt;
    const Group group = is_exchange ? group_of(rank, collective) : Group();
    return Place(collective.kind, group, collective.bytes->count(), 0);
  };
  std::map<Place, Duration> shortest;
  for (const auto& [key, c] : places) {
    keep_least(shortest, of_size(c).value_or(key.second), own_time(rank, c));
  }
  for (const auto& [key, c] : places) {
    rank.transfer[static_cast<std::size_t>(c)] = shortest.at(of_size(c).value_or(key.second));
  }
}

class Matcher {
 public:
  explicit Matcher(JobTrace& job) : job_(job), reason_(job.ranks.size()) {}

  void match() {
    pair_up();
    align_clocks();
    for (MatchedCollective& matched : job_.matched) measure(matched);
    share_shortest_messages();
    std::ranges::sort(job_.matched, {}, [&](const MatchedCollective& m) {
      return absolute(m.ranks[0], work_of(job_.ranks[m.ranks[0]], m.by_rank[0]).start);
    });
    // Of the same ranks, the one before.
    std::map<std::vector<std::size_t>, const MatchedCollective*> before;
    for (MatchedCollective& matched : job_.matched) {
      const MatchedCollective*& last = before[matched.ranks];
      name_the_reason(matched, last);
      last = &matched;
    }
  }

 private:
  [[nodiscard]] std::int64_t absolute(std::size_t rank, Instant at) const {
    const RankTrace& r = job_.ranks[rank];
    return r.trace.base_ns + r.line.origin_ns + (at.time_since_epoch() + r.clock_offset).count();
  }

  [[nodiscard]] const TracedCollective& collective(std::size_t rank, std::int32_t number) const {
    return job_.ranks[rank].line.collectives[static_cast<std::size_t>(number)];
  }

  // How many of the given ranks have to have a collective of that group; nothing where its name stands for several groups
  // and nobody can tell them apart.
  [[nodiscard]] std::optional<std::size_t> expected(const MatchedCollective& matched,
                                                    const Group& group) const {
    const std::vector<std::int64_t>& members = group.first;
    const bool knows_ranks = std::ranges::all_of(
        job_.ranks, [](const RankTrace& rank) { return rank.trace.rank.has_value(); });
    if (!members.empty()) {
      if (!knows_ranks) return std::min(job_.ranks.size(), members.size());
      return static_cast<std::size_t>(std::ranges::count_if(job_.ranks, [&](const RankTrace& rank) {
        return std::ranges::binary_search(members, rank.rank);
      }));
    }
    const std::int64_t size =
        collective(matched.ranks[0], matched.by_rank[0]).group_size.value_or(0);
    const auto seen = std::ssize(matched.ranks);
    if (size > 0 && seen > size) return std::nullopt;
    if (size > 0 && size < std::ssize(job_.ranks)) return static_cast<std::size_t>(size);
    return job_.ranks.size();
  }

  void pair_up() {
    std::map<std::pair<std::int32_t, Place>, MatchedCollective> places;
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) {
      for (const auto& [key, number] : places_of(job_.ranks[r])) {
        MatchedCollective& matched = places[key];
        matched.step = key.first;
        matched.ranks.push_back(r);
        matched.by_rank.push_back(number);
      }
    }
    std::size_t lone = 0;
    std::set<std::string> of_one_name;
    for (auto& [key, matched] : places) {
      const Group& group = std::get<1>(key.second);
      const std::optional<std::size_t> wanted = expected(matched, group);
      if (!wanted) {
        of_one_name.insert(group.second);
      } else if (matched.ranks.size() != *wanted) {
        ++lone;
      } else if (*wanted > 1) {
        job_.matched.push_back(std::move(matched));
      }
    }
    if (lone > 0) {
      job_.unknowns.push_back(std::to_string(lone) +
                              " collectives have no partner on some other given rank of their "
                              "group");
    }
    for (const std::string& name : of_one_name) {
      job_.unknowns.push_back("who meets in groups called \"" + name +
                              "\": more ranks have one than it has members, and the traces do not "
                              "tell their ranks");
    }
  }

  // From rank to rank along what they have in common. Ranks that meet nobody so far begin a time of their own.
  void align_clocks() {
    std::vector<char> aligned(job_.ranks.size(), 0);
    for (std::size_t root = 0; root < job_.ranks.size(); ++root) {
      aligned[root] = 1;
      bool any = true;
      while (any) {
        any = false;
        for (std::size_t r = root + 1; r < job_.ranks.size(); ++r) {
          if (aligned[r] != 0) continue;
          std::vector<Duration> off = offsets_of(r, aligned);
          if (off.empty()) continue;
          job_.ranks[r].clock_offset = median(std::move(off));
          aligned[r] = 1;
          any = true;
        }
      }
    }
  }

  // What a rank's ends are off those of the first aligned rank that it met.
  [[nodiscard]] std::vector<Duration> offsets_of(std::size_t rank,
                                                 const std::vector<char>& aligned) const {
    std::vector<Duration> off;
    for (const MatchedCollective& matched : job_.matched) {
      const auto own = std::ranges::find(matched.ranks, rank);
      if (own == matched.ranks.end()) continue;
      const auto other =
          std::ranges::find_if(matched.ranks, [&](std::size_t r) { return aligned[r] != 0; });
      if (other == matched.ranks.end()) continue;
      const auto end_of = [&](auto which) {
        const auto place = static_cast<std::size_t>(which - matched.ranks.begin());
        return absolute(*which, work_of(job_.ranks[*which], matched.by_rank[place]).end);
      };
      off.emplace_back(end_of(other) - end_of(own));
    }
    return off;
  }

  void measure(MatchedCollective& matched) {
    std::int64_t first_start = 0;
    std::int64_t last_start = 0;
    std::int64_t first_end = 0;
    std::int64_t last_end = 0;
    std::vector<Duration> starts;
    for (std::size_t i = 0; i < matched.ranks.size(); ++i) {
      const std::size_t r = matched.ranks[i];
      const GpuWork& work = work_of(job_.ranks[r], matched.by_rank[i]);
      const Duration duration = work.end - work.start;
      const std::int64_t start = absolute(r, work.start);
      const std::int64_t end = absolute(r, work.end);
      matched.total += duration;
      const Duration own = own_time(job_.ranks[r], matched.by_rank[i]);
      if (i == 0 || own < matched.transfer) matched.transfer = own;
      if (i == 0 || start > last_start) {
        last_start = start;
        matched.late_rank = r;
      }
      first_start = i == 0 ? start : std::min(first_start, start);
      first_end = i == 0 ? end : std::min(first_end, end);
      last_end = i == 0 ? end : std::max(last_end, end);
      starts.emplace_back(start);
    }
    matched.start_spread = Duration(last_start - first_start);
    matched.end_spread = Duration(last_end - first_end);
    matched.late_by = Duration(last_start) - median_or(std::move(starts), Duration{});
    take_transfer(matched, matched.transfer);
  }

  // Of all messages of one size.
  void share_shortest_messages() {
    std::map<std::int64_t, Duration> shortest;
    const auto size_of = [&](const MatchedCollective& matched) -> std::optional<std::int64_t> {
      const TracedCollective& one = collective(matched.ranks[0], matched.by_rank[0]);
      if (one.kind != CollectiveKind::SendReceive || !one.bytes) return std::nullopt;
      return one.bytes->count();
    };
    for (const MatchedCollective& matched : job_.matched) {
      const auto size = size_of(matched);
      if (!size) continue;
      const auto [entry, added] = shortest.emplace(*size, matched.transfer);
      if (!added) entry->second = std::min(entry->second, matched.transfer);
    }
    for (MatchedCollective& matched : job_.matched) {
      if (const auto size = size_of(matched)) take_transfer(matched, shortest.at(*size));
    }
  }

  // It takes that long by itself on all ranks, the rest is waiting.
  void take_transfer(MatchedCollective& matched, Duration transfer) {
    matched.transfer = transfer;
    matched.waiting = matched.total - transfer * std::ssize(matched.ranks);
    for (std::size_t i = 0; i < matched.ranks.size(); ++i) {
      job_.ranks[matched.ranks[i]].transfer[static_cast<std::size_t>(matched.by_rank[i])] =
          transfer;
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
      const GpuWork& work = work_of(rank, m.of(r));
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
    auto first = std::ranges::lower_bound(rank.trace.events, from, {}, &RecordedEvent::start_ns);
    for (; first != rank.trace.events.end(); ++first) {
      const RecordedEvent& event = *first;
      if (event.start_ns >= window.to) break;
      const bool host = event.kind == EventKind::Operator || event.kind == EventKind::Annotation ||
                        event.kind == EventKind::RuntimeCall;
      if (!host || event.end_ns() <= window.from) continue;
      if (rank.trace.is(event, Is::ProfilerStep)) continue;
      const std::string_view name = rank.trace.name_of(event);
      time[name] +=
          Duration(std::min(event.end_ns(), window.to) - std::max(event.start_ns, window.from));
    }
    return time;
  }

  // How much later than the median of the others this rank launched a collective; without one, began
  // its step.
  [[nodiscard]] Duration lateness(std::size_t rank, std::int32_t step,
                                  const std::vector<std::size_t>& ranks,
                                  const MatchedCollective* matched) const {
    const auto moment = [&](std::size_t r) {
      const RankTrace& of = job_.ranks[r];
      Instant at = of.line.steps[static_cast<std::size_t>(step)].start;
      if (matched != nullptr) {
        const GpuWork& work = work_of(of, matched->of(r));
        at = work.launch == kNone ? work.start
                                  : of.line.calls[static_cast<std::size_t>(work.launch)].start;
      }
      return Duration(absolute(r, at));
    };
    std::vector<Duration> others;
    for (const std::size_t r : ranks) {
      if (r != rank) others.push_back(moment(r));
    }
    return moment(rank) - median_or(std::move(others), Duration{});
  }

  // A rank that was as late before has not become late here: its reason is the earlier one.
  bool carried_over(MatchedCollective& matched, const MatchedCollective* before) {
    const bool same_step = before != nullptr && before->step == matched.step;
    const std::size_t rank = matched.late_rank;
    const Duration now = lateness(rank, matched.step, matched.ranks, &matched);
    const Duration earlier =
        lateness(rank, matched.step, matched.ranks, same_step ? before : nullptr);
    if (earlier * 2 < now) return false;
    if (!same_step) reason_[rank] = "the beginning of its step (what came before is another step)";
    matched.late_with = reason_[rank];
    return true;
  }

  void name_the_reason(MatchedCollective& matched, const MatchedCollective* before) {
    if (matched.late_by <= Duration{}) return;
    if (carried_over(matched, before)) return;
    find_reason(matched, before);
    if (!matched.late_with.empty()) reason_[matched.late_rank] = matched.late_with;
  }

  void find_reason(MatchedCollective& matched, const MatchedCollective* before) const {
    std::vector<std::map<std::string_view, Duration>> others;
    for (const std::size_t r : matched.ranks) {
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

// Steps that were left out on one rank are none of the job's: ranks are compared step by step.
void leave_out_unshared(JobTrace& job) {
  std::map<std::string, std::size_t> seen;
  for (const RankTrace& rank : job.ranks) {
    for (const TracedStep& step : rank.line.steps) ++seen[step.name];
  }
  for (RankTrace& rank : job.ranks) {
    std::vector<char> out;
    for (const TracedStep& step : rank.line.steps) {
      out.push_back(seen[step.name] < job.ranks.size() ? 1 : 0);
    }
    if (std::ranges::count(out, 0) == 0) return;  // they do not name their steps alike
  }
  for (RankTrace& rank : job.ranks) {
    std::vector<char> out;
    for (const TracedStep& step : rank.line.steps) {
      out.push_back(seen[step.name] < job.ranks.size() ? 1 : 0);
      if (out.back() == 0) continue;
      rank.line.notes.push_back("left out: " + step.name + " of rank " + std::to_string(rank.rank) +
                                ", which another rank does not have");
    }
    if (std::ranges::count(out, 1) > 0) leave_out_steps(rank.line, out);
  }
}

// What the files say of their job must agree: steps of different jobs have no mean.
void check_one_job(const JobTrace& job) {
  std::set<std::int64_t> seen;
  const auto told = std::ranges::find_if(
      job.ranks, [](const RankTrace& rank) { return rank.trace.world_size.has_value(); });
  for (const RankTrace& rank : job.ranks) {
    if (told == job.ranks.end() || &rank == &*told) continue;
    const std::int64_t world = *told->trace.world_size;
    const std::string of =
        told->trace.file + ": a job of " + counted(world, "rank") + ", but " + rank.trace.file;
    if (rank.trace.world_size.value_or(world) != world) {
      throw InputError(of + " is of " + std::to_string(*rank.trace.world_size) +
                       ": give the files of one job");
    }
    if (rank.rank >= world) {
      throw InputError(
          of + (rank.trace.rank ? " is rank " + std::to_string(rank.rank) : " would be one more") +
          ": give the files of one job");
    }
  }
  for (const RankTrace& rank : job.ranks) {
    if (seen.insert(rank.rank).second) continue;
    throw InputError(rank.trace.file + ": rank " + std::to_string(rank.rank) +
                     " stands in another file too; give each rank once");
  }
}

// Ranks are compared and their steps averaged only if something says that they are of one job: a world size, or a
// collective that another rank has as well.
void require_one_job(const JobTrace& job) {
  std::set<std::size_t> meets;
  for (const MatchedCollective& matched : job.matched) {
    meets.insert(matched.ranks.begin(), matched.ranks.end());
  }
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    if (job.ranks[r].trace.world_size || meets.contains(r)) continue;
    const std::size_t other = r == 0 ? 1 : 0;
    const std::string& report = job.ranks[r].trace.report;
    if (!report.empty() && report == job.ranks[other].trace.report) continue;
    throw InputError(job.ranks[r].trace.file + ": nothing says that it is of the same job as " +
                     job.ranks[other].trace.file +
                     " (no world size, and no collective that both have): give each alone");
  }
}

// Of several ranks those without GPU work that can be read count in no figure.
void leave_out_unread(JobTrace& job) {
  const auto is_unread = [](const RankTrace& rank) { return rank.line.works.empty(); };
  if (std::ranges::all_of(job.ranks, is_unread)) return;
  for (const RankTrace& rank : job.ranks) {
    if (!is_unread(rank)) continue;
    job.unknowns.push_back("what rank " + std::to_string(rank.rank) + " did: " + rank.trace.file +
                           " has no GPU work that can be read, and is left out");
  }
  std::erase_if(job.ranks, is_unread);
}

}  // namespace

std::int32_t MatchedCollective::of(std::size_t rank) const {
  const auto found = std::ranges::find(ranks, rank);
  return by_rank[static_cast<std::size_t>(found - ranks.begin())];
}

std::optional<std::int64_t> JobTrace::world_size() const {
  std::int64_t largest = 0;
  for (const RankTrace& rank : ranks) {
    if (rank.trace.world_size) return rank.trace.world_size;
    for (const TracedCollective& collective : rank.line.collectives) {
      largest = std::max(largest, collective.group_size.value_or(0));
    }
  }
  if (largest == 0) return std::nullopt;
  return std::max(largest, std::ssize(ranks));
}

std::int64_t JobTrace::least_world_size() const {
  return world_size().value_or(std::max<std::int64_t>(1, std::ssize(ranks)));
}

JobTrace make_job(std::vector<Recording> traces, const JobOptions& options) {
  JobTrace job;
  for (Recording& trace : traces) {
    RankTrace rank;
    rank.line = join(trace, options.join);
    rank.rank = trace.rank.value_or(static_cast<std::int64_t>(job.ranks.size()));
    rank.trace = std::move(trace);
    job.ranks.push_back(std::move(rank));
  }
  check_one_job(job);
  std::ranges::sort(job.ranks, {}, &RankTrace::rank);
  leave_out_unread(job);
  if (job.ranks.size() > 1) {
    require_one_run(job);
    leave_out_unshared(job);
  }
  job.pipeline = pipeline_of(job);
  for (RankTrace& rank : job.ranks) {
    rank.is_stage = job.pipeline.has_value();
    transfer_over_steps(rank);
  }
  if (job.ranks.size() > 1) {
    Matcher(job).match();
    require_one_job(job);
    require_one_time(job);
  }
  for (const RankTrace& rank : job.ranks) {
    for (std::size_t c = 0; c < rank.line.collectives.size(); ++c) {
      if (rank.is_message(static_cast<std::int32_t>(c))) continue;
      const GpuWork& work = work_of(rank, static_cast<std::int32_t>(c));
      job.collective_time += work.end - work.start;
      job.waiting_time += work.end - work.start - rank.transfer[c];
    }
  }
  if (!job.world_size()) {
    job.unknowns.emplace_back("of how many ranks the job is: no file says its world size");
  }
  if (job.ranks.size() == 1 && job.least_world_size() > 1) {
    job.unknowns.emplace_back(
        "one rank's trace only: which rank was waited for, and more than an upper bound of what "
        "collectives cost by themselves; give the traces of all ranks");
  }
  return job;
}

}  // namespace dovetail::imports
