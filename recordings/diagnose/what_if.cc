// Changes of a workload are changes of its profile: another table of all-reduces, no host, or parts of steps that were
// replayed with other collectives of no length. The interval of a gain holds how much the same change of the recorded
// graph differs from step to step, and by how much the workload misses the recorded step.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/what_if.h"

#include "base/statistics.h"
#include "recordings/diagnose/host_time.h"
#include "recordings/diagnose/recording_cost.h"
#include "recordings/diagnose/serial_waits.h"
#include "schedule/policies/policies.h"
#include "sim/edits.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace dovetail::diagnose {
namespace {

schedule::Program program_of(const models::Profile& profile) {
  return models::profile_program(profile);
}

models::Costs costs_of(const models::Profile& profile, Network network) {
  models::Costs costs = models::profile_costs(profile, program_of(profile));
  if (network == Network::AsMeasured) return costs;
  for (models::CollectiveCost& cost : costs.collectives) {
    cost.time = models::CollectiveTable(models::AlphaBeta{});
  }
  return costs;
}

// The profile with all-reduces that take what they took on this rank, waiting included: medians over its buckets.
models::Profile as_recorded(models::Profile profile, const RankTrace& rank,
                            const std::vector<TracedBuckets>& buckets) {
  std::map<Bytes, std::vector<Duration>> by_size;
  for (const TracedBuckets& step : buckets) {
    for (const TracedBucket& bucket : step.buckets) {
      if (bucket.collective == kNone || bucket.bytes <= Bytes(0)) continue;
      const TracedCollective& collective =
          rank.line.collectives[static_cast<std::size_t>(bucket.collective)];
      const GpuWork& work = rank.line.works[static_cast<std::size_t>(collective.work)];
      by_size[bucket.bytes].push_back(std::max(Duration(1), work.end - work.start));
    }
  }
  if (by_size.empty()) return profile;
  profile.collectives.emplace();
  for (auto& [bytes, times] : by_size) {
    std::ranges::sort(times);
    profile.collectives->points.push_back({.bytes = bytes, .isolated = times[times.size() / 2]});
  }
  if (by_size.size() == 1) {
    const models::CollectivePoint only = profile.collectives->points.front();
    profile.collectives->points.push_back({.bytes = only.bytes * 2, .isolated = only.isolated * 2});
  }
  return profile;
}

std::vector<Duration> lengths(const std::vector<TimedStep>& steps) {
  std::vector<Duration> result;
  for (const TimedStep& step : steps) result.push_back(step.step);
  return result;
}

// Differences by step, as their median and twice the deviation of their mean. One step that took otherwise moves neither
// far: the deviation is taken from the distances to the median, of which it is 1.48 times the middle one.
struct Spread {
  Duration middle{}, around{};
};
Spread spread_of(const std::vector<Duration>& before, const std::vector<Duration>& after) {
  std::vector<Duration> gains;
  for (std::size_t i = 0; i < before.size(); ++i) gains.push_back(before[i] - after[i]);
  const Duration middle = median_or(gains, Duration{});
  if (gains.size() < 2) return {middle, {}};
  for (Duration& gain : gains) gain = std::chrono::abs(gain - middle);
  const double deviation = 1.48 * static_cast<double>(median(gains).count());
  return {middle, from_ns(2 * deviation / std::sqrt(static_cast<double>(gains.size())))};
}

Duration mean_error(const ReplayError& error, std::size_t steps) {
  const auto count = static_cast<double>(std::max<std::size_t>(1, steps));
  return from_ns(std::abs(error.step) * static_cast<double>(error.recorded_step.count()) / count);
}

// Nothing where gradients cannot share buckets freely or nothing is known of all-reduces.
std::optional<WorkloadCheck> checked(const TracedWorkload& workload, const RankTrace& rank,
                                     const RankReplay& replay) {
  if (!workload.profile.collectives) return std::nullopt;
  Forecast own(workload, as_recorded(workload.profile, rank, replay.buckets));
  if (!own.one_kind()) return std::nullopt;
  return WorkloadCheck{.recorded = usual_step(rank.line),
                       .predicted = own.step(workload.ends, InFlight::Any)};
}

// Steps whose collectives wait for nobody they need not wait for; each as long as the collectives of one stream at least.
std::vector<Duration> replayed_without(const RankTrace& rank, const RankReplay& replay,
                                       SerialWait::Kind kind) {
  RecordedGraph changed = replay.recorded;
  take_away(changed, serial_waits(rank, changed, replay.buckets), kind);
  std::vector<Duration> steps = lengths(replayed_steps(changed, rank.line, played(changed.graph)));
  const std::vector<Duration> before =
      lengths(replayed_steps(replay.recorded, rank.line, replay.timeline));
  for (std::size_t s = 0; s < steps.size(); ++s) {
    std::map<step::SlotId, Duration> moving;  // of each stream
    for (const step::NodeId node : changed.works[s]) {
      const auto n = static_cast<std::size_t>(node);
      if (changed.communicates(node))
        moving[changed.graph.slot[n]] += Duration(changed.graph.work[n].ns());
    }
    Duration longest{};
    for (const auto& [stream, time] : moving) longest = std::max(longest, time);
    steps[s] = std::min(before[s], std::max(steps[s], longest));
  }
  return steps;
}

// Whether a piece of compute is a copy into or out of a gather for backward.
bool copies_gathered(const RankTrace& rank, const GpuWork& work) {
  if (work.launch == kNone) return false;
  const std::int32_t call = rank.line.calls[static_cast<std::size_t>(work.launch)].event;
  const std::int32_t gather = imports::enclosing(rank.trace, rank.line, call, Is::FsdpGather);
  return gather != kNone &&
         imports::enclosing(rank.trace, rank.line, gather, Is::FsdpBeforeBackward) != kNone;
}

// Steps in which parameters are not gathered again for backward: those gathers, and the copies out of them, take no time. The host
// does what it did.
std::vector<Duration> replayed_kept(const RankTrace& rank, const RankReplay& replay) {
  RecordedGraph changed = replay.recorded;
  const std::optional<Sharding> sharding = imports::sharding_of(rank.trace, rank.line);
  if (!sharding) return lengths(replayed_steps(changed, rank.line, replay.timeline));
  step::Patch patch(changed.graph);
  for (step::NodeId node = 0; node < changed.graph.size(); ++node) {
    if (!changed.is_gpu_work(node)) continue;
    const GpuWork& work = rank.line.works[static_cast<std::size_t>(changed.origin_of(node).index)];
    const bool gathers =
        work.collective != kNone &&
        sharding->gathers_in_backward[static_cast<std::size_t>(work.collective)] != 0;
    if (gathers || (work.collective == kNone && copies_gathered(rank, work)))
      patch.set_time(node, 0);
  }
  return lengths(replayed_steps(changed, rank.line, played(changed.graph)));
}

// Steps whose optimizer issues its first launch only: its other calls, and the pauses before them, take no time. Its kernels
// take what they took.
std::vector<Duration> replayed_fused(const RankTrace& rank, const RankReplay& replay) {
  RecordedGraph changed = replay.recorded;
  step::Patch patch(changed.graph);
  const OptimizerCalls optimizer = optimizer_calls(rank);
  bool inside = false;
  for (step::NodeId node = 0; node < changed.graph.size(); ++node) {
    const Origin& origin = changed.origin_of(node);
    if (origin.kind != Origin::Kind::Call) continue;
    const auto call = static_cast<std::size_t>(origin.index);
    const bool before = std::exchange(inside, optimizer.inside[call] != 0);
    if (!inside || !before) continue;
    patch.set_time(node, 0);
    const auto [begin, end] = changed.graph.edges_of(node);
    for (std::size_t edge = begin; edge < end; ++edge) {
      if (changed.graph.edge_kind[edge] == step::EdgeKind::Order) patch.set_lag(node, edge, 0);
    }
  }
  return lengths(replayed_steps(changed, rank.line, played(changed.graph)));
}

// A rank's forecasts of each change, on its workload where that is right.
class RankChanges {
 public:
  RankChanges(const JobTrace& job, std::size_t number, const RankReplay& replay,
              const std::vector<StepCauses>& causes, std::optional<Duration> unprofiled_step)
      : job_(job),
        number_(number),
        replay_(replay),
        causes_(causes),
        rank_(job.ranks[number]),
        unprofiled_step_(unprofiled_step),
        sharding_(imports::sharding_of(rank_.trace, rank_.line)) {}

  RankForecast forecast() {
    RankForecast result;
    make_workload(result);
    if (!replay_.error.is_trustworthy() || rank_.line.works.empty()) return result;
    const auto add = [&](Change change) {
      if (most(change) > Duration{}) result.what_ifs.push_back(what_if(result, change));
    };
    if (!rank_.line.collectives.empty()) {
      add(Change::NoNetwork);
      add(Change::NobodyLate);
      add(Change::NoBubble);
      const std::vector<SerialWait> waits = serial_waits(rank_, replay_.recorded, replay_.buckets);
      const auto has = [&](SerialWait::Kind kind) {
        return std::ranges::any_of(waits,
                                   [&](const SerialWait& wait) { return wait.kind == kind; });
      };
      if (has(SerialWait::Kind::Reduction)) {
        add(Change::WaitAtUpdate);
      }
      if (has(SerialWait::Kind::Gather)) {
        add(Change::Prefetch);
      }
      if (sharding_ && sharding_->gathers_again()) add(Change::KeepParameters);
    }
    if (rank_.line.on_cpu) return result;
    constexpr double kManyLaunches = 20;
    if (optimizer_calls(rank_).launches >= kManyLaunches) {
      add(Change::FusedOptimizer);
    }
    if (most(Change::NoRecording) > Duration{} || unprofiled_step_) {
      result.what_ifs.push_back({Change::NoRecording, gain_without_recording()});
    }
    add(Change::NoHost);
    return result;
  }

 private:
  void make_workload(RankForecast& result) {
    auto made = import_workload(job_, number_, replay_, "step");
    auto* imported = std::get_if<ImportedWorkload>(&made);
    if (imported == nullptr) {
      result.why_none = std::get<std::string>(std::move(made));
      return;
    }
    if (!imported->check) {
      result.why_none =
          imported->workload.profile.collectives
              ? "gradients of several element types, which share no bucket: no other buckets are "
                "tried"
              : "the trace tells no time of an all-reduce of all ranks: what other buckets would "
                "take is not known";
      return;
    }
    result.check = imported->check;
    host_ = imported->host;
    result.workload = std::move(imported->workload);
  }

  // The step under a change of collectives, where these are known.
  [[nodiscard]] std::optional<Duration> changed(Change change) const {
    const bool no_network = change == Change::NoNetwork;
    const Extracted extracted = workload_of(
        job_, number_, replay_,
        {.others = no_network ? OtherCollectives::WaitingOnly : OtherCollectives::OwnTime,
         .host = host_});
    const auto* const other = std::get_if<TracedWorkload>(&extracted);
    if (other == nullptr || !other->profile.collectives) return std::nullopt;
    return Forecast(*other, other->profile, no_network ? Network::TakesNoTime : Network::AsMeasured)
        .step(other->ends, InFlight::Any);
  }

  // What a host that takes no time gives; nothing for one that waits for the GPU, which it would go on to do.
  [[nodiscard]] static std::optional<Duration> gain_without_host(const TracedWorkload& own) {
    if (!own.profile.host || own.host_waits) return std::nullopt;
    return Forecast(own, own.profile).step(own.ends, InFlight::Any) -
           Forecast(own, without_host(own.profile)).step(own.ends, InFlight::Any);
  }

  // Measured, or as the recorded steps replay with records of either price.
  [[nodiscard]] Gain gain_without_recording() const {
    const std::vector<Duration> steps =
        lengths(replayed_steps(replay_.recorded, rank_.line, replay_.timeline));
    if (unprofiled_step_) {
      const Duration gain = std::max(Duration{}, usual_step(rank_.line) - *unprofiled_step_);
      return {gain, gain, gain};
    }
    const RecordingCost cost = recording_cost(rank_, Duration::max());
    const auto gain = [&](Duration of_operator, Duration of_call) {
      return spread_of(steps, steps_without_recording(rank_, replay_, {of_operator, of_call}))
          .middle;
    };
    const Duration around = least_around(steps) + mean_error(replay_.error, steps.size());
    const Duration limit = most(Change::NoRecording);
    const auto within = [limit](Duration time) { return std::clamp(time, Duration{}, limit); };
    return {within(gain((cost.of_operator.low + cost.of_operator.high) / 2,
                        (cost.of_call.low + cost.of_call.high) / 2)),
            within(gain(cost.of_operator.low, cost.of_call.low) - around),
            within(gain(cost.of_operator.high, cost.of_call.high) + around)};
  }

  // Nobody knows what another step would gain: half a percent of this one, as for buckets, and of several their mean's.
  [[nodiscard]] static Duration least_around(const std::vector<Duration>& steps) {
    const double share = 200 * std::sqrt(static_cast<double>(steps.size()));
    return from_ns(static_cast<double>(median(steps).count()) / share);
  }

  // On the workload; nothing where that does not hold what is changed.
  [[nodiscard]] std::optional<Duration> gain(const RankForecast& forecast, Change change) const {
    if (!forecast.workload || !forecast.check->is_trustworthy()) return std::nullopt;
    if (change == Change::NoBubble || change == Change::WaitAtUpdate ||
        change == Change::Prefetch || change == Change::KeepParameters ||
        change == Change::FusedOptimizer) {
      return std::nullopt;
    }
    if (change == Change::NoHost) return gain_without_host(*forecast.workload);
    const std::optional<Duration> step = changed(change);
    if (!step) return std::nullopt;
    return forecast.check->predicted - *step;
  }

  [[nodiscard]] WhatIf what_if(const RankForecast& forecast, Change change) const {
    const std::vector<Duration> steps =
        lengths(replayed_steps(replay_.recorded, rank_.line, replay_.timeline));
    const Spread spread = spread_of(steps, replayed_with(rank_, replay_, change));
    Duration middle = spread.middle;
    Duration around = spread.around + mean_error(replay_.error, rank_.line.steps.size());
    if (const std::optional<Duration> on_workload = gain(forecast, change)) {
      const WorkloadCheck& check = *forecast.check;
      middle = *on_workload;
      around = spread.around + std::chrono::abs(check.predicted - check.recorded);
    }
    around = std::max(around, least_around(steps));
    // No change makes a step longer, and none takes more than what it is the cause of.
    const Duration limit = most(change);
    middle = std::clamp(middle, Duration{}, limit);
    return {change,
            {middle, std::max(Duration{}, middle - around), std::min(middle + around, limit)}};
  }

  // What the steps lost to that of which the change is the end, in the middle.
  [[nodiscard]] Duration most(Change change) const {
    std::vector<Duration> lost;
    for (const StepCauses& step : causes_) lost.push_back(lost_to(step, change));
    return median_or(std::move(lost), Duration{});
  }

  [[nodiscard]] Duration lost_to(const StepCauses& step, Change change) const {
    const auto by = [&](Cause cause) { return step.by[static_cast<std::size_t>(cause)]; };
    switch (change) {
      case Change::NoNetwork:
        return step.exposed - by(Cause::Host) - by(Cause::Straggler) - by(Cause::Bubble);
      case Change::NobodyLate:
        return by(Cause::Straggler);
      case Change::NoBubble:
        return by(Cause::Bubble);
      case Change::WaitAtUpdate:
        return by(Cause::Serialised);
      case Change::Prefetch:
        return by(Cause::NoPrefetch);
      case Change::KeepParameters:
        return lost_to_gathers_in_backward(step, *sharding_);
      case Change::FusedOptimizer:
      case Change::NoRecording:
      case Change::NoHost:
        break;
    }
    return step.gpu_waits_for_host + by(Cause::Host);
  }

  const JobTrace& job_;
  std::size_t number_;
  const RankReplay& replay_;
  const std::vector<StepCauses>& causes_;
  const RankTrace& rank_;
  std::optional<Duration> unprofiled_step_;
  std::optional<Sharding> sharding_;
  HostTaken host_ = HostTaken::RunsAhead;
};

}  // namespace

Forecast::Forecast(const TracedWorkload& workload, const models::Profile& profile, Network network)
    : copied_(workload.profile.recorded->is_copied),
      planner_(program_of(profile), costs_of(profile, network)) {}

schedule::Schedule Forecast::buckets(std::span<const std::size_t> ends, InFlight in_flight) const {
  const auto policy =
      schedule::parse_policy(copied_ ? "torch-ddp:mode=copy" : "torch-ddp:mode=view");
  schedule::Schedule schedule = schedule::partition(planner_.program(), ends, policy);
  if (in_flight == InFlight::One) {
    for (schedule::Bucket& bucket : schedule.buckets) {
      bucket.wait = schedule::WaitPoint::BeforeNextBatch;
    }
  }
  return schedule;
}

Duration Forecast::step(std::span<const std::size_t> ends, InFlight in_flight) {
  return Duration(planner_.evaluate(buckets(ends, in_flight)).step_ns);
}

bool Forecast::one_kind() const { return schedule::kinds_of(planner_.program()).ends.size() == 1; }

double WorkloadCheck::error() const {
  if (recorded <= Duration{}) return 1;
  return static_cast<double>((predicted - recorded).count()) /
         static_cast<double>(recorded.count());
}

bool WorkloadCheck::is_trustworthy() const { return std::abs(error()) <= 0.02; }

std::variant<ImportedWorkload, std::string> import_workload(const JobTrace& job, std::size_t rank,
                                                            const RankReplay& replay,
                                                            const std::string& name) {
  std::optional<ImportedWorkload> best;
  for (const HostTaken host : {HostTaken::RunsAhead, HostTaken::Follows}) {
    Extracted extracted = workload_of(job, rank, replay, {.name = name, .host = host});
    if (auto* const problem = std::get_if<std::string>(&extracted)) return std::move(*problem);
    ImportedWorkload found{
        .workload = std::get<TracedWorkload>(std::move(extracted)), .host = host, .check = {}};
    found.check = checked(found.workload, job.ranks[rank], replay);
    if (found.check) found.workload.profile.recorded->replayed = found.check->predicted;
    const bool is_better =
        !best || (found.check && std::abs(found.check->error()) < std::abs(best->check->error()));
    if (is_better) best = std::move(found);
    if (!best->workload.host_waits || !best->check) break;
  }
  return *std::move(best);
}

RankForecast forecast_rank(const JobTrace& job, std::size_t rank, const RankReplay& replay,
                           const std::vector<StepCauses>& causes,
                           std::optional<Duration> unprofiled_step) {
  return RankChanges(job, rank, replay, causes, unprofiled_step).forecast();
}

std::vector<Duration> replayed_with(const RankTrace& rank, const RankReplay& replay,
                                    Change change) {
  if (change == Change::WaitAtUpdate) {
    return replayed_without(rank, replay, SerialWait::Kind::Reduction);
  }
  if (change == Change::Prefetch) return replayed_without(rank, replay, SerialWait::Kind::Gather);
  if (change == Change::FusedOptimizer) return replayed_fused(rank, replay);
  if (change == Change::KeepParameters) return replayed_kept(rank, replay);
  RecordedGraph changed = replay.recorded;
  step::StepGraph& graph = changed.graph;
  step::Patch patch(graph);
  for (step::NodeId node = 0; node < graph.size(); ++node) {
    const Origin& origin = changed.origin_of(node);
    const auto n = static_cast<std::size_t>(node);
    if (origin.kind == Origin::Kind::Work) {
      const std::int32_t collective =
          rank.line.works[static_cast<std::size_t>(origin.index)].collective;
      if (collective == kNone || change == Change::NoHost) continue;
      const bool is_own_time = change == Change::NobodyLate || change == Change::NoBubble;
      if (is_own_time && rank.is_message(collective) != (change == Change::NoBubble)) continue;
      const std::int64_t all = graph.work[n].ns();
      const std::int64_t own =
          std::min(all, rank.transfer[static_cast<std::size_t>(collective)].count());
      patch.set_time(node, is_own_time ? own : all - own);
      continue;
    }
    if (change != Change::NoHost) continue;
    patch.set_time(node, 0);
    const auto [begin, end] = graph.edges_of(node);
    for (std::size_t edge = begin; edge < end; ++edge) {
      if (graph.edge_kind[edge] == step::EdgeKind::Order) patch.set_lag(node, edge, 0);
    }
  }
  return lengths(replayed_steps(changed, rank.line, played(graph)));
}

Duration lost_to_gathers_in_backward(const StepCauses& step, const Sharding& sharding) {
  Duration lost{};
  for (const ExposedCollective& share : step.collectives) {
    if (sharding.gathers_in_backward[static_cast<std::size_t>(share.collective)] == 0) continue;
    lost += share.exposed - share.by[static_cast<std::size_t>(Cause::Host)];
  }
  return lost;
}

models::Profile without_host(models::Profile profile) {
  profile.bucket_call = {};
  for (models::ProfiledWork* part :
       {&profile.host->forward, &profile.host->rest, &profile.host->optimizer}) {
    part->issue = {};
  }
  for (models::ProfiledGradient& gradient : profile.gradients) gradient.work->issue = {};
  return profile;
}

}  // namespace dovetail::diagnose
