// Each exposed moment is cut where the collective in flight changes; what the next other work waited for (started_by of
// the replay) then says whose it is. That work may be of a later step, or missing at the end of the trace.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/causes.h"

#include "recordings/diagnose/replay.h"
#include "recordings/diagnose/serial_waits.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dovetail::diagnose {
namespace {

using traces::Interval;

Duration overlap(Interval a, Interval b) {
  const Instant from = std::max(a.start, b.start);
  const Instant to = std::min(a.end, b.end);
  return to > from ? to - from : Duration{};
}

class StepAttribution {
 public:
  // `busy`: when the GPU ran anything, of any step. `period`: what the step takes.
  StepAttribution(const RankTrace& rank, const RecordedGraph& recorded,
                  const step::Timeline& timeline, const std::vector<SerialWait>& serial,
                  const TracedBuckets& buckets, const std::vector<Interval>& busy,
                  std::int32_t step, Duration period)
      : rank_(rank),
        recorded_(recorded),
        timeline_(timeline),
        serial_(serial),
        buckets_(buckets),
        busy_(busy),
        step_(step),
        period_(period) {}

  StepCauses attribute() {
    list_works();
    for (const Interval& interval : exposed_intervals(times_)) attribute(interval);
    for (auto& [collective, share] : shares_) {
      for (std::size_t c = 0; c < kCauses; ++c) result_.by[c] += share.by[c];
      result_.exposed += share.exposed;
      result_.collectives.push_back(share);
    }
    waits_for_host();
    return std::move(result_);
  }

 private:
  [[nodiscard]] const GpuWork& work(std::int32_t number) const {
    return rank_.line.works[static_cast<std::size_t>(number)];
  }

  void list_works() {
    const TracedStep& step = rank_.line.steps[static_cast<std::size_t>(step_)];
    times_ = work_times(rank_.line, step);
    for (const std::int32_t number : step.works) {
      if (work(number).is_aside) continue;
      (work(number).collective == kNone ? compute_ : communication_).push_back(number);
    }
    const auto by_start = [&](std::int32_t number) { return work(number).start; };
    std::ranges::sort(compute_, {}, by_start);
    std::ranges::sort(communication_, {}, by_start);
    for (std::size_t b = 0; b < buckets_.buckets.size(); ++b) {
      if (buckets_.buckets[b].collective == kNone) continue;
      bucket_of_[buckets_.buckets[b].collective] = static_cast<std::int32_t>(b);
    }
  }

  // What the next other work waits for: a collective, and since when it is that that holds it up; none: the host made it late.
  struct Wanted {
    std::int32_t collective = kNone;
    Instant since;             // before it the host is late by itself
    step::NodeId waiting = 0;  // the work, or the return of a call
  };

  // Of any step: the first work from then on that is no collective.
  [[nodiscard]] Wanted waited_for(Instant from) const {
    const std::vector<GpuWork>& works = rank_.line.works;
    auto next = std::ranges::lower_bound(works, from, {}, &GpuWork::start);
    std::optional<step::NodeId> node;
    for (; next != works.end() && !node; ++next) {
      if (next->collective != kNone || next->is_aside) continue;
      node = recorded_.node_of_work[static_cast<std::size_t>(next - works.begin())];
    }
    if (!node) return behind_the_last(from);
    const std::optional<step::Edge> by = step::started_by(recorded_.graph, timeline_, *node);
    // What runs on a collective's own stream waits for it by its place in that.
    const bool is_behind =
        by && by->kind == step::EdgeKind::Order && collective_of(by->from) != kNone;
    if (!by || (by->kind != step::EdgeKind::Event && !is_behind)) {
      const std::int32_t launch = work(recorded_.origin_of(*node).index).launch;
      // Nobody can tell that the host was late with what has no launch in the file.
      if (launch == kNone) return {in_flight_until(from), Instant::min(), *node};
      const auto call = recorded_.node_of_call[static_cast<std::size_t>(launch)];
      return call ? host_wait(*call, launch) : Wanted{};
    }
    return {collective_of(by->from), Instant::min(), *node};
  }

  // Nothing follows in the trace: the host waits for the collective, or goes on and leaves it to the network.
  [[nodiscard]] Wanted behind_the_last(Instant until) const {
    const Wanted waits = host_wait(recorded_.graph.size(), kNone);
    if (waits.collective != kNone) return waits;
    for (const std::int32_t number : communication_) {
      if (work(number).end >= until) return {work(number).collective, Instant::min(), 0};
    }
    return {};
  }

  [[nodiscard]] std::int32_t collective_of(step::NodeId node) const {
    const Origin& origin = recorded_.origin_of(node);
    return origin.kind == Origin::Kind::Work ? work(origin.index).collective : kNone;
  }

  // A launch came late because the host itself stood in a call that waited for a collective: of the calls before node `from`
  // since the piece of work before it was launched.
  [[nodiscard]] Wanted host_wait(step::NodeId from, std::int32_t launch) const {
    for (step::NodeId at = from; at-- > 0;) {
      const Origin& before = recorded_.origin_of(at);
      if (before.kind == Origin::Kind::Work) {
        if (!recorded_.communicates(at)) return {};
        continue;
      }
      if (before.kind != Origin::Kind::Return || before.index == launch) continue;
      const auto by = step::started_by(recorded_.graph, timeline_, at);
      if (!by || by->kind != step::EdgeKind::Synchronise) continue;
      return {collective_of(by->from),
              rank_.line.calls[static_cast<std::size_t>(before.index)].start, at};
    }
    return {};
  }

  [[nodiscard]] std::int32_t in_flight(Instant at) const {
    for (const std::int32_t number : communication_) {
      if (work(number).start <= at && at < work(number).end) return work(number).collective;
    }
    return kNone;
  }

  // Of those that ended last by then.
  [[nodiscard]] std::int32_t in_flight_until(Instant at) const {
    std::int32_t last = kNone;
    Instant end = Instant::min();
    for (const std::int32_t number : communication_) {
      if (work(number).start >= at || work(number).end < end) continue;
      last = work(number).collective;
      end = work(number).end;
    }
    return last;
  }

  void add(std::int32_t collective, Cause cause, Duration time) {
    if (time <= Duration{}) return;
    ExposedCollective& share = shares_[collective];
    share.collective = collective;
    const auto bucket = bucket_of_.find(collective);
    if (bucket != bucket_of_.end()) share.bucket = bucket->second;
    share.exposed += time;
    share.by[static_cast<std::size_t>(cause)] += time;
  }

  // Exposed moments up to the next other work, cut where one collective ends and another runs on, and where the host begins to
  // wait.
  void attribute(Interval interval) {
    const Wanted wanted = waited_for(interval.end);
    Instant at = interval.start;
    while (at < interval.end) {
      const std::int32_t collective = in_flight(at);
      if (collective == kNone) return;
      const GpuWork& running =
          work(rank_.line.collectives[static_cast<std::size_t>(collective)].work);
      const Interval part{at, std::min(running.end, interval.end)};
      if (wanted.collective == kNone) {
        add(collective, Cause::Host, part.length());
      } else {
        const Instant since = std::clamp(wanted.since, part.start, part.end);
        add(collective, Cause::Host, since - part.start);
        split(collective, wanted, {since, part.end});
      }
      at = part.end;
    }
  }

  void split(std::int32_t collective, const Wanted& wanted, Interval part) {
    const GpuWork& running =
        work(rank_.line.collectives[static_cast<std::size_t>(collective)].work);
    const Duration transfer = rank_.transfer[static_cast<std::size_t>(collective)];
    const Instant moves = running.end - transfer;
    add(collective, rank_.is_message(collective) ? Cause::Bubble : Cause::Straggler,
        overlap(part, {running.start, moves}));
    const Duration moving = overlap(part, {moves, running.end});
    if (moving <= Duration{}) return;
    const SerialWait* const serial = serial_wait(wanted);
    if (serial != nullptr && serial->kind == SerialWait::Kind::Reduction) {
      add(collective, Cause::Serialised, moving);
      return;
    }
    if (serial != nullptr) {
      // Also the time in which it queues behind another collective: it would have been ahead of that.
      const bool queues = collective != wanted.collective;
      const Duration earlier =
          queues ? moving : std::min(moving, could_start_earlier(*serial, running));
      add(collective, Cause::NoPrefetch, earlier);
      add(collective, Cause::Link, moving - earlier);
      return;
    }
    if (collective != wanted.collective && starts_before(collective, wanted.collective)) {
      add(collective, Cause::LaunchOrder, moving);
      return;
    }
    const Duration late = std::min(moving, sent_too_late(collective));
    add(collective, Cause::ClosedLate, late);
    add(collective, Cause::Link, moving - late);
  }

  // The wait, where nothing demands it.
  [[nodiscard]] const SerialWait* serial_wait(const Wanted& wanted) const {
    auto found = std::ranges::lower_bound(serial_, wanted.waiting, {}, &SerialWait::waiting);
    for (; found != serial_.end() && found->waiting == wanted.waiting; ++found) {
      if (found->collective == wanted.collective) return &*found;
    }
    return nullptr;
  }

  // By how much a gather would have started earlier behind the compute of one layer before, and behind the gather before it.
  [[nodiscard]] Duration could_start_earlier(const SerialWait& wait, const GpuWork& running) const {
    Instant free =
        wait.instead ? work(recorded_.origin_of(*wait.instead).index).end : Instant::min();
    for (const std::int32_t number : communication_) {
      const TracedCollective& other =
          rank_.line.collectives[static_cast<std::size_t>(work(number).collective)];
      if (other.kind == CollectiveKind::AllGather && work(number).end <= running.start) {
        free = std::max(free, work(number).end);
      }
    }
    return free == Instant::min() ? Duration{} : std::max(Duration{}, running.start - free);
  }

  // In flight while another one is waited for, and not one of the same DDP bucket list: those are waited
  // for together.
  [[nodiscard]] bool starts_before(std::int32_t collective, std::int32_t wanted) const {
    if (bucket_of_.contains(collective) && bucket_of_.contains(wanted)) return false;
    return work(rank_.line.collectives[static_cast<std::size_t>(collective)].work).start <
           work(rank_.line.collectives[static_cast<std::size_t>(wanted)].work).start;
  }

  // How much earlier the bucket would have ended, had each gradient been sent when it was ready, at the
  // same rate, behind what its stream was busy with.
  [[nodiscard]] Duration sent_too_late(std::int32_t collective) const {
    const auto found = bucket_of_.find(collective);
    if (found == bucket_of_.end()) return {};
    const TracedBucket& bucket = buckets_.buckets[static_cast<std::size_t>(found->second)];
    const GpuWork& running =
        work(rank_.line.collectives[static_cast<std::size_t>(collective)].work);
    const Duration transfer = rank_.transfer[static_cast<std::size_t>(collective)];
    if (bucket.elements <= 0) return {};
    Instant free;
    for (const std::int32_t number : communication_) {
      if (work(number).stream == running.stream && work(number).end <= running.start) {
        free = std::max(free, work(number).end);
      }
    }
    for (const TracedGradient& gradient : bucket.gradients) {
      const double share =
          static_cast<double>(gradient.elements) / static_cast<double>(bucket.elements);
      free = std::max(free, gradient.ready) +
             Duration(static_cast<std::int64_t>(share * static_cast<double>(transfer.count())));
    }
    return std::max(Duration{}, running.end - free);
  }

  // The works of the next step up to its first one on the compute stream, with which this step ends; none: no step follows.
  [[nodiscard]] std::vector<std::int32_t> works_that_end_it() const {
    const auto s = static_cast<std::size_t>(step_);
    const std::vector<TracedStep>& steps = rank_.line.steps;
    if (s + 1 >= steps.size() || steps[s].is_before_gap) return {};
    std::vector<std::int32_t> works = steps[s + 1].works;
    std::erase_if(works, [&](std::int32_t number) { return work(number).is_aside; });
    std::ranges::sort(works, {}, [&](std::int32_t number) { return work(number).start; });
    const auto first = std::ranges::find_if(works, [&](std::int32_t number) {
      return work(number).stream == rank_.line.compute_stream;
    });
    if (first != works.end()) works.erase(first + 1, works.end());
    return works;
  }

  // Time in which the GPU of this rank ran nothing and the work that ended it had been launched late. Of a step that none
  // follows also what it takes beyond its own work, as nothing was launched then.
  void waits_for_host() {
    if (rank_.line.on_cpu) return;
    std::vector<std::int32_t> all = compute_;
    all.insert(all.end(), communication_.begin(), communication_.end());
    if (all.empty()) return;
    const std::vector<std::int32_t> next = works_that_end_it();
    if (next.empty()) {
      Interval own{work(all.front()).start, {}};
      for (const std::int32_t number : all) {
        own.start = std::min(own.start, work(number).start);
        own.end = std::max(own.end, work(number).end);
      }
      result_.gpu_waits_for_host += std::max(Duration{}, period_ - own.length());
    }
    all.insert(all.end(), next.begin(), next.end());
    std::ranges::sort(all, {}, [&](std::int32_t number) { return work(number).start; });
    Instant busy;
    for (const std::int32_t number : all) {
      const GpuWork& now = work(number);
      const auto node = recorded_.node_of_work[static_cast<std::size_t>(number)];
      if (busy != Instant() && now.start > busy && node && was_launched_late(*node)) {
        result_.gpu_waits_for_host += traces::uncovered({busy, now.start}, busy_);
      }
      busy = std::max(busy, now.end);
    }
  }

  [[nodiscard]] bool was_launched_late(step::NodeId node) const {
    const auto by = step::started_by(recorded_.graph, timeline_, node);
    return by && by->kind == step::EdgeKind::Launch;
  }

  const RankTrace& rank_;
  const RecordedGraph& recorded_;
  const step::Timeline& timeline_;
  const std::vector<SerialWait>& serial_;  // by waiting node
  const TracedBuckets& buckets_;
  const std::vector<Interval>& busy_;
  std::int32_t step_;
  Duration period_;
  std::vector<WorkTime> times_;
  std::vector<std::int32_t> compute_, communication_;  // works of the step, by start
  std::map<std::int32_t, std::int32_t> bucket_of_;     // by collective
  std::map<std::int32_t, ExposedCollective> shares_;   // by collective
  StepCauses result_;
};

// How much of each piece of compute lies inside collectives.
std::vector<double> share_beside(const RankTimeline& line) {
  std::vector<Interval> communication;
  for (const TracedCollective& collective : line.collectives) {
    const GpuWork& work = line.works[static_cast<std::size_t>(collective.work)];
    communication.push_back({work.start, work.end});
  }
  communication = traces::union_of(std::move(communication));
  std::vector<double> shares;
  shares.reserve(line.works.size());
  for (const GpuWork& work : line.works) {
    const Duration length = work.end - work.start;
    const Duration outside = traces::uncovered({work.start, work.end}, communication);
    shares.push_back(length <= Duration{} ? 0
                                          : 1 - static_cast<double>(outside.count()) /
                                                    static_cast<double>(length.count()));
  }
  return shares;
}

}  // namespace

std::string_view to_string(Cause cause) {
  switch (cause) {
    case Cause::Host:
      return "host";
    case Cause::Straggler:
      return "straggler";
    case Cause::Bubble:
      return "bubble";
    case Cause::LaunchOrder:
      return "launch order";
    case Cause::ClosedLate:
      return "bucket closed late";
    case Cause::Serialised:
      return "serialised";
    case Cause::NoPrefetch:
      return "no prefetch";
    case Cause::Link:
      break;
  }
  return "link";
}

std::vector<StepCauses> causes_of(const RankTrace& rank, const RecordedGraph& recorded,
                                  const step::Timeline& timeline,
                                  const std::vector<TracedBuckets>& buckets) {
  std::vector<Interval> busy;
  for (const GpuWork& work : rank.line.works) {
    if (!work.is_aside) busy.push_back({work.start, work.end});
  }
  busy = traces::union_of(std::move(busy));
  std::vector<StepCauses> causes;
  const std::vector<SerialWait> serial = serial_waits(rank, recorded, buckets);
  const std::vector<TimedStep> steps = recorded_steps(rank.line);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    causes.push_back(StepAttribution(rank, recorded, timeline, serial, buckets[s], busy,
                                     static_cast<std::int32_t>(s), steps[s].step)
                         .attribute());
  }
  return causes;
}

double Contention::factor() const {
  if (alone <= Duration{}) return 1;
  return static_cast<double>(beside.count()) / static_cast<double>(alone.count());
}

Contention contention_of(const RankTrace& rank) {
  constexpr Duration kShortest = std::chrono::microseconds(20);
  Contention contention;
  if (rank.line.collectives.empty()) return contention;
  const std::vector<double> shares = share_beside(rank.line);
  struct Seen {
    std::vector<Duration> alone, beside;
  };
  // By place in the launch order of the step: pairs are found by order, and must agree in name and grid.
  std::map<std::pair<std::size_t, std::int32_t>, Seen> places;
  Duration all_beside{};
  for (const TracedStep& step : rank.line.steps) {
    for (std::size_t i = 0; i < step.works.size(); ++i) {
      const auto number = static_cast<std::size_t>(step.works[i]);
      const GpuWork& work = rank.line.works[number];
      const RecordedEvent& event = rank.trace.events[static_cast<std::size_t>(work.event)];
      if (event.kind != EventKind::Kernel || work.collective != kNone || work.is_aside) continue;
      const Duration length = work.end - work.start;
      all_beside +=
          Duration(static_cast<std::int64_t>(shares[number] * static_cast<double>(length.count())));
      if (length < kShortest) continue;
      Seen& seen = places[{i, event.name}];
      if (shares[number] >= 0.9) seen.beside.push_back(length);
      if (shares[number] <= 0) seen.alone.push_back(length);
    }
  }
  for (auto& [place, seen] : places) {
    if (seen.alone.empty() || seen.beside.empty()) continue;
    const auto middle = [](std::vector<Duration>& values) {
      std::ranges::sort(values);
      return values[values.size() / 2];
    };
    const Duration alone = middle(seen.alone);
    for (const Duration beside : seen.beside) {
      ++contention.kernels;
      contention.alone += alone;
      contention.beside += beside;
    }
  }
  const double factor = std::max(1.0, contention.factor());
  const auto steps = static_cast<double>(std::max<std::size_t>(1, rank.line.steps.size()));
  contention.lost = Duration(static_cast<std::int64_t>(static_cast<double>(all_beside.count()) *
                                                       (1 - 1 / factor) / steps));
  return contention;
}

}  // namespace dovetail::diagnose
