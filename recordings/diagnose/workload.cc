// Cutting quiet steps into parts, and writing what they are as a profile (the idea: workload.h).
//
// The two numbers of a part come from one pass over its nodes in issue order. Each node has two times: one counts from
// the device being free when the part begins, with launches that never hold anything up; the other counts from the
// host's calls alone, with everything before the part done long ago. Medians are taken of moments within the step, not
// of lengths, so that they still add up to the step.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/workload.h"

#include "base/error.h"
#include "base/statistics.h"
#include "recordings/diagnose/causes.h"
#include "recordings/diagnose/recording_cost.h"
#include "recordings/profile_file.h"
#include "schedule/place_names.h"
#include "sim/edits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>

namespace dovetail::diagnose {
namespace {

using step::NodeId;

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min() / 4;

// Which of the host's launches of a bucket in the trace stands for all: the lower quartile of their
// times, the mean, the upper quartile.
struct BucketCalls {
  Duration quick{}, mean{}, slow{};
};

// A recorded graph whose buckets take no time, and what launching them took the host.
class QuietGraph {
 public:
  QuietGraph(const RankTrace& rank, const RankReplay& replay, OtherCollectives others)
      : rank_(rank), recorded_(replay.recorded), patch_(recorded_.graph) {
    quieten_others(others);
    for (const TracedBuckets& step : replay.buckets) {
      // On a CPU the thread makes the copies: they are compute, and stay in it.
      if (!rank.line.on_cpu) {
        for (const std::int32_t work : step.copies_back) set_time(work, 0);
      }
      for (const TracedBucket& bucket : step.buckets) quieten(bucket);
    }
    timeline_ = played(recorded_.graph);
  }

  [[nodiscard]] const RecordedGraph& recorded() const { return recorded_; }
  [[nodiscard]] const step::Timeline& timeline() const { return timeline_; }

  // Whether GPU work is the step's own.
  [[nodiscard]] bool computes(NodeId work) const {
    return !recorded_.communicates(work) &&
           !rank_.line.works[static_cast<std::size_t>(recorded_.origin_of(work).index)].is_aside;
  }

  [[nodiscard]] BucketCalls calls() const {
    if (calls_.empty()) return {};
    std::vector<Duration> sorted = calls_;
    std::ranges::sort(sorted);
    const std::size_t last = sorted.size() - 1;
    const Duration sum = std::accumulate(sorted.begin(), sorted.end(), Duration{});
    return {.quick = sorted[sorted.size() / 4],
            .mean = sum / static_cast<std::int64_t>(sorted.size()),
            .slow = sorted[std::min(last, sorted.size() * 3 / 4)]};
  }

 private:
  [[nodiscard]] std::optional<NodeId> node_of(std::int32_t work) const {
    return recorded_.node_of_work[static_cast<std::size_t>(work)];
  }
  void set_time(std::int32_t work, std::int64_t ns) {
    if (const auto node = node_of(work)) patch_.set_time(*node, ns);
  }

  void quieten_others(OtherCollectives others) {
    if (others == OtherCollectives::AsRecorded) return;
    for (std::size_t c = 0; c < rank_.line.collectives.size(); ++c) {
      const std::int32_t number = rank_.line.collectives[c].work;
      const GpuWork& work = rank_.line.works[static_cast<std::size_t>(number)];
      const Duration all = work.end - work.start;
      const Duration own = std::min(rank_.transfer[c], all);
      set_time(number, (others == OtherCollectives::OwnTime ? own : all - own).count());
    }
  }

  void quieten(const TracedBucket& bucket) {
    if (!rank_.line.on_cpu && bucket.copied) {
      for (const std::int32_t work : bucket.copies_in) set_time(work, 0);
    }
    if (bucket.collective == kNone) return;
    const TracedCollective& collective =
        rank_.line.collectives[static_cast<std::size_t>(bucket.collective)];
    const auto node = node_of(collective.work);
    if (!node) return;
    patch_.set_time(*node, 0);
    // The calls inside the operator that launched it stand around the launch.
    const RecordedEvent& op = rank_.trace.events[static_cast<std::size_t>(bucket.call)];
    Duration taken{};
    for (NodeId at = *node; at-- > 0 && is_inside(at, op);) taken += take_out(at);
    for (NodeId at = *node + 1; at < recorded_.graph.size() && is_inside(at, op); ++at) {
      taken += take_out(at);
    }
    // Calls that were recorded inside one another have pauses below 0 between them (step::Edge::lag).
    calls_.push_back(std::max(taken, Duration{}));
  }

  [[nodiscard]] bool is_inside(NodeId node, const RecordedEvent& op) const {
    const Origin& origin = recorded_.origin_of(node);
    if (origin.kind != Origin::Kind::Call && origin.kind != Origin::Kind::Return) return false;
    const HostCall& call = rank_.line.calls[static_cast<std::size_t>(origin.index)];
    const std::int64_t at = rank_.line.origin_ns + call.start.time_since_epoch().count();
    // On a CPU the pause before the operator's own call is what the thread did before.
    const bool begun = rank_.line.on_cpu ? at > op.start_ns : at >= op.start_ns;
    return call.thread == op.thread && begun && at < op.end_ns();
  }

  // Of a node of the host: its time and the pause before it.
  Duration take_out(NodeId node) {
    std::int64_t taken = recorded_.graph.work[static_cast<std::size_t>(node)].ns();
    patch_.set_time(node, 0);
    const auto [begin, end] = recorded_.graph.edges_of(node);
    for (std::size_t edge = begin; edge < end; ++edge) {
      if (recorded_.graph.edge_kind[edge] != step::EdgeKind::Order) continue;
      taken += recorded_.graph.lag_of(edge);
      patch_.set_lag(node, edge, 0);
    }
    return Duration(taken);
  }

  const RankTrace& rank_;
  RecordedGraph recorded_;
  step::Patch patch_;
  step::Timeline timeline_;
  std::vector<Duration> calls_;
};

// One part of a step: its nodes are the GPU work from the part before up to `last`.
struct Cut {
  NodeId last = 0;
  std::optional<NodeId> exit =
      {};  // what ends it; absent: the last to end of its work that is no collective
};

// When a part may begin for all that the host does, and when it ends; ns from the begin of the step on the host.
struct Moment {
  std::int64_t may_begin = 0, end = 0;
};
struct QuietStep {
  std::int64_t free = 0;  // when the device has finished the step before
  std::vector<Moment> parts;
  std::int64_t host = 0;  // from step to step, on the host
};

class Cutter {
 public:
  Cutter(const RankTrace& rank, const std::vector<TracedBuckets>& buckets,
         const RecordedGraph& recorded)
      : rank_(rank), buckets_(buckets), recorded_(recorded) {
    find_backward();
  }

  // Forward, one part for each gradient, the rest of backward, and what follows up to the next step. Empty where the step
  // has no gradient, no backward on the GPU, or work of a gradient is not in it.
  [[nodiscard]] std::vector<Cut> cut(std::size_t s) const {
    const Range range = range_of(s);
    std::optional<NodeId> first;
    NodeId last = 0;
    for (const NodeId node : recorded_.works[s]) {
      if (in_backward_[static_cast<std::size_t>(recorded_.origin_of(node).index)] == 0) continue;
      first = std::min(first.value_or(node), node);
      last = std::max(last, node);
    }
    if (!first) return {};
    std::vector<Cut> cuts = {{*first - 1}};
    NodeId before = *first - 1;
    for (const TracedBucket& bucket : buckets_[s].buckets) {
      for (const TracedGradient& gradient : bucket.gradients) {
        if (gradient.work == kNone) return {};
        const auto node = recorded_.node_of_work[static_cast<std::size_t>(gradient.work)];
        if (!node) return {};
        before = std::max(before, *node);
        cuts.push_back({before, *node});
      }
    }
    if (cuts.size() == 1) return {};
    cuts.push_back({std::max(before, last)});
    cuts.push_back({range.end - 1});
    return cuts;
  }

  struct Range {
    NodeId begin = 0, end = 0;
  };
  // From the marker of one step to that of the next one.
  [[nodiscard]] Range range_of(std::size_t s) const {
    const bool is_last = s + 1 == recorded_.steps.size();
    return {recorded_.steps[s].begin,
            is_last ? recorded_.graph.size() : recorded_.steps[s + 1].begin};
  }

 private:
  // Work launched by autograd.
  void find_backward() {
    in_backward_.assign(rank_.line.works.size(), 0);
    for (std::size_t i = 0; i < in_backward_.size(); ++i) {
      const GpuWork& work = rank_.line.works[i];
      if (work.launch == kNone || work.collective != kNone) continue;
      const HostCall& call = rank_.line.calls[static_cast<std::size_t>(work.launch)];
      const bool is = imports::enclosing(rank_.trace, rank_.line,
                                         rank_.line.parent[static_cast<std::size_t>(call.event)],
                                         Is::EngineFunction) != kNone;
      in_backward_[i] = is ? 1 : 0;
    }
  }

  const RankTrace& rank_;
  const std::vector<TracedBuckets>& buckets_;
  const RecordedGraph& recorded_;
  std::vector<char> in_backward_;  // by work
};

// The moments of the parts of one step.
class Chains {
 public:
  explicit Chains(const QuietGraph& quiet)
      : quiet_(quiet),
        recorded_(quiet.recorded()),
        timeline_(quiet.timeline()),
        from_device_(timeline_.end.size(), kNever),
        from_host_(timeline_.end.size(), kNever) {}

  std::vector<Moment> moments(const std::vector<Cut>& cuts, NodeId from) {
    std::vector<Moment> moments;
    const std::int64_t zero = timeline_.start_of(from);
    std::int64_t may_begin = 0;
    for (const Cut& cut : cuts) {
      const Exit exit = walk(from, cut);
      if (exit.end > kNever) {
        // Equal but for what other streams do: when the part ended is kept.
        const std::int64_t end = exit.end - zero;
        if (exit.from_host > kNever) {
          may_begin = std::clamp(exit.from_host - exit.from_device - zero, may_begin,
                                 std::max(may_begin, end));
        }
        moments.push_back({may_begin, end});
      } else {
        moments.push_back(moments.empty() ? Moment{} : moments.back());
      }
      from = std::max(from, cut.last + 1);
    }
    return moments;
  }

 private:
  struct Exit {
    std::int64_t end = kNever, from_device = kNever, from_host = kNever;
  };

  Exit walk(NodeId from, const Cut& cut) {
    Exit exit;
    for (NodeId node = from; node <= cut.last; ++node) {
      if (!recorded_.is_gpu_work(node)) continue;
      follow(node, from);
      const bool counts = cut.exit ? node == *cut.exit : quiet_.computes(node);
      if (!counts) continue;
      const auto n = static_cast<std::size_t>(node);
      exit.end = std::max(exit.end, timeline_.end[n]);
      exit.from_device = std::max(exit.from_device, from_device_[n]);
      exit.from_host = std::max(exit.from_host, from_host_[n]);
    }
    return exit;
  }

  void follow(NodeId node, NodeId from) {
    const auto n = static_cast<std::size_t>(node);
    const std::int64_t work = recorded_.graph.work[n].ns();
    std::int64_t device = 0;
    std::int64_t host = kNever;
    bool is_launched = false;
    const auto [begin, end] = recorded_.graph.edges_of(node);
    for (std::size_t k = begin; k < end; ++k) {
      const step::Edge edge = recorded_.graph.edge(k);
      if (edge.kind == step::EdgeKind::Launch) {
        is_launched = true;
        host = std::max(host, timeline_.end_of(edge.from) + edge.lag);
      } else if (edge.from >= from) {
        const auto p = static_cast<std::size_t>(edge.from);
        device = std::max(device, from_device_[p] + edge.lag);
        if (from_host_[p] > kNever) host = std::max(host, from_host_[p] + edge.lag);
      }
    }
    if (!is_launched) host = std::max(host, recorded_.graph.release_of(node));
    from_device_[n] = device + work;
    from_host_[n] = host > kNever ? host + work : kNever;
  }

  const QuietGraph& quiet_;
  const RecordedGraph& recorded_;
  const step::Timeline& timeline_;
  std::vector<std::int64_t> from_device_, from_host_;  // ends, by node
};

QuietStep middle_of(const std::vector<QuietStep>& steps) {
  const auto middle = [&](auto value) {
    std::vector<std::int64_t> values;
    for (const QuietStep& step : steps) values.push_back(value(step));
    return median_or(std::move(values), std::int64_t{0});
  };
  QuietStep result;
  result.free = middle([](const QuietStep& step) { return step.free; });
  result.host = middle([](const QuietStep& step) { return step.host; });
  for (std::size_t i = 0; i < steps.front().parts.size(); ++i) {
    result.parts.push_back({middle([i](const QuietStep& step) { return step.parts[i].may_begin; }),
                            middle([i](const QuietStep& step) { return step.parts[i].end; })});
  }
  // Parts follow each other on the device and on the host, also as medians.
  std::int64_t end = result.free;
  for (Moment& part : result.parts) end = part.end = std::max(part.end, end);
  return result;
}

// Each part as an op: what it takes once it may begin, and what the host takes after the part before.
std::vector<models::ProfiledWork> works_of(const QuietStep& step) {
  std::vector<models::ProfiledWork> works;
  std::int64_t free = step.free;
  std::int64_t host = step.parts.back().may_begin - step.host;
  for (const Moment& part : step.parts) {
    works.push_back({.compute = Duration(part.end - std::clamp(part.may_begin, free, part.end)),
                     .issue = Duration(std::max<std::int64_t>(0, part.may_begin - host))});
    free = part.end;
    host = part.may_begin;
  }
  return works;
}

// The steps with as many gradients as most have.
struct QuietSteps {
  std::vector<QuietStep> steps;
  std::size_t first = 0;  // in RankTimeline::steps
};

// What the host takes from one step to the next: between the launches of their first work on the compute stream, as a
// step is counted on the GPU; where one is missing, between their begins.
std::int64_t host_period(const QuietGraph& quiet, const RankTimeline& line, std::size_t s) {
  const RecordedGraph& recorded = quiet.recorded();
  const step::Timeline& timeline = quiet.timeline();
  const std::int64_t begin = timeline.start_of(recorded.steps[s].begin);
  if (s + 1 == recorded.steps.size()) return timeline.end_of(recorded.steps[s].end) - begin;
  const auto first_launch = [&](std::size_t step) {
    std::optional<std::int64_t> first;
    for (const NodeId node : recorded.works[step]) {
      const auto& work = line.works[static_cast<std::size_t>(recorded.origin_of(node).index)];
      if (work.stream != line.compute_stream || work.launch == kNone) continue;
      const auto call = recorded.node_of_call[static_cast<std::size_t>(work.launch)];
      if (!call) continue;
      first = std::min(first.value_or(timeline.start_of(*call)), timeline.start_of(*call));
    }
    return first;
  };
  const auto own = first_launch(s);
  const auto next = first_launch(s + 1);
  if (own && next) return *next - *own;
  return timeline.start_of(recorded.steps[s + 1].begin) - begin;
}

QuietSteps quiet_steps(const QuietGraph& quiet, const Cutter& cutter, const RankTimeline& line) {
  const std::size_t count = quiet.recorded().steps.size();
  std::vector<std::vector<Cut>> cuts;
  std::map<std::size_t, std::size_t> votes;
  for (std::size_t s = 0; s < count; ++s) {
    cuts.push_back(cutter.cut(s));
    if (!cuts.back().empty() && stands_for_all(line, s)) ++votes[cuts.back().size()];
  }
  QuietSteps result;
  if (votes.empty()) return result;
  const std::size_t usual =
      std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; })->first;
  const step::Timeline& timeline = quiet.timeline();
  Chains chains(quiet);
  std::optional<std::int64_t> busy;  // until when the step before kept the device
  // A host that waits once for several micro-steps takes no time for the others.
  const bool micro_steps = line.accumulation.reducing > 1;
  std::int64_t mean = 0;
  for (std::size_t s = 0; s < count && micro_steps; ++s) mean += host_period(quiet, line, s);
  mean /= static_cast<std::int64_t>(count);
  for (std::size_t s = 0; s < count; ++s) {
    const Cutter::Range range = cutter.range_of(s);
    const std::int64_t zero = timeline.start_of(range.begin);
    const bool is_before_gap = line.steps[s].is_before_gap;  // holds what was left out
    if (cuts[s].size() == usual && !is_before_gap && stands_for_all(line, s)) {
      if (result.steps.empty()) result.first = s;
      result.steps.push_back({.free = busy.value_or(zero) - zero,
                              .parts = chains.moments(cuts[s], range.begin),
                              .host = micro_steps ? mean : host_period(quiet, line, s)});
    }
    for (const NodeId node : quiet.recorded().works[s]) {
      if (quiet.computes(node)) {
        busy = std::max(busy.value_or(kNever), timeline.end_of(node));
      }
    }
  }
  return result;
}

// Time of copying into and out of buckets, per byte.
double copy_ns_per_byte(const RankTrace& rank, const std::vector<TracedBuckets>& buckets) {
  Duration time{};
  Bytes bytes;
  for (const TracedBuckets& step : buckets) {
    for (const TracedBucket& bucket : step.buckets) {
      if (!bucket.copied) continue;
      bytes += bucket.bytes;
      for (const std::int32_t number : bucket.copies_in) {
        const GpuWork& work = rank.line.works[static_cast<std::size_t>(number)];
        time += work.end - work.start;
      }
    }
  }
  if (bytes.count() == 0) return 0;
  return static_cast<double>(time.count()) / static_cast<double>(bytes.count());
}

void add_gradients(models::Profile& profile, const TracedBuckets& buckets,
                   std::span<const Moment> parts, std::int64_t begin) {
  for (std::size_t b = 0; b < buckets.buckets.size(); ++b) {
    const TracedBucket& bucket = buckets.buckets[b];
    const std::int64_t size = bucket.element_size.count();
    for (std::size_t g = 0; g < bucket.gradients.size(); ++g) {
      profile.gradients.push_back(
          {.name = schedule::place_name(b, g),
           .numel = std::max<std::int64_t>(1, bucket.gradients[g].elements),
           .dtype = size == 2   ? schedule::DType::BF16
                    : size == 8 ? schedule::DType::F64
                                : schedule::DType::F32,
           .ready = {Duration(parts[profile.gradients.size()].end - begin)}});
    }
  }
}

// Times, gradients and, where it never waits for the GPU, the host of the profile.
void add_step(models::Profile& profile, const QuietSteps& quiet, const TracedBuckets& buckets,
              HostTaken host) {
  QuietStep step = middle_of(quiet.steps);
  // A step is over when its host part is, too.
  if (host == HostTaken::Follows)
    step.parts.back().end = std::max(step.parts.back().end, step.free + step.host);
  const std::size_t rest = step.parts.size() - 2;
  const std::int64_t forward = step.parts.front().end;
  const std::int64_t backward = step.parts[rest].end;
  profile.by_rank = {{.forward = Duration(forward - step.free),
                      .backward = Duration(backward - forward),
                      .optimizer = Duration(step.parts.back().end - backward)}};
  add_gradients(profile, buckets, std::span(step.parts).subspan(1), forward);
  if (host == HostTaken::Follows) return;
  const std::vector<models::ProfiledWork> works = works_of(step);
  profile.host = {.forward = works.front(), .rest = works[rest], .optimizer = works.back()};
  for (std::size_t g = 0; g < profile.gradients.size(); ++g) {
    profile.gradients[g].work = works[1 + g];
  }
}

// Where the GPU stands still for a tenth of the step and more: what bounds the step is known at once.
void add_host_note(TracedWorkload& workload, const RankTrace& rank, const RankReplay& replay) {
  std::vector<Duration> all_waits;
  for (const StepCauses& step : causes_of(rank, replay.recorded, replay.timeline, replay.buckets)) {
    all_waits.push_back(step.gpu_waits_for_host);
  }
  const Duration waits = median_or(std::move(all_waits), Duration{});
  const Duration step = usual_step(rank.line);
  if (waits * 10 < step) return;
  const auto ms = [](Duration time) {
    const std::int64_t tenths = std::llround(to_us(time) / 100);
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " ms";
  };
  workload.notes.push_back(
      "the GPU waits " + ms(waits) + " of " + ms(step) + " a step for the host" +
      (workload.profile.host ? ", which issues work here as it did there"
                             : ", and here that time counts as compute: what makes compute shorter "
                               "(sharded updates, another GPU) gains less than predicted"));
  const RecordingCost::Range cost = recording_cost(rank, step).a_step();
  if (cost.high * 20 < step) return;
  workload.notes.push_back("of what the host takes, recording the trace cost it " + ms(cost.low) +
                           " to " + ms(cost.high) +
                           " a step (an estimate): without the profiler the step is shorter by "
                           "up to that");
}

// What stands in the table that was not seen.
std::string estimate_note(const std::vector<models::CollectivePoint>& points) {
  const std::string first = dovetail::to_string(points.front().bytes);
  const std::string last = dovetail::to_string(points.back().bytes);
  return (points.size() == 1 ? "one size of all-reduce in the trace, " + first + ": all others"
                             : "all-reduces below " + first + " and beyond " + last) +
         " are estimates from latency and bandwidth, with their range in all_reduce_estimated";
}

void add_notes(TracedWorkload& workload, const JobTrace& job, const RankTrace& rank,
               const TracedBuckets& buckets) {
  std::vector<std::string>& notes = workload.notes;
  if (!buckets.sizes_known) {
    notes.emplace_back(
        "the trace does not tell the size of each gradient (record with record_shapes=True): the "
        "elements of a bucket are shared out evenly over its gradients");
  }
  if (rank.line.accumulation.reducing > 1) {
    notes.push_back("every step of the optimizer has " +
                    std::to_string(rank.line.accumulation.reducing) +
                    " micro-steps that reduce: this is the last of them, with the update");
  }
  if (buckets.gradients_after_last > 0) {
    notes.push_back(std::to_string(buckets.gradients_after_last) +
                    " gradients belong to no bucket and are left out");
  }
  const TracedBucket& first = buckets.buckets.front();
  if (first.sent_element != first.element_size) {
    notes.push_back("a communication hook of DDP sends gradients of " +
                    std::to_string(first.element_size.count()) + " bytes an element as " +
                    std::to_string(first.sent_element.count()) +
                    ": sizes are those of the gradients, which bucket_cap_mb counts, and "
                    "times of all-reduces those of what was sent (another --cluster counts the "
                    "gradients)");
  }
  if (!workload.profile.collectives) {
    notes.emplace_back("no size of an all-reduce in the trace: no table; name a --cluster to plan");
  } else {
    notes.push_back(estimate_note(workload.profile.collectives->points));
    if (job.ranks.size() == 1) {
      notes.emplace_back(
          "all-reduce times are the shortest over the steps of one rank: upper bounds, they may "
          "contain waiting for other ranks");
    }
  }
  if (rank.line.on_cpu) {
    notes.emplace_back(
        "of a CPU: copies into and out of buckets are compute, and so is what collectives beside "
        "it cost it");
  }
  const auto others = std::ranges::count_if(rank.line.collectives, [](const TracedCollective& c) {
    return c.kind != CollectiveKind::AllReduce;
  });
  if (others > 0) {
    notes.push_back(std::to_string(others) +
                    " collectives that are no all-reduce keep their recorded place and time");
  }
}

// The recorded step and its buckets, which are DDP's. A host that waits for the GPU has its waits
// taken for work of its own (HostTaken), or is no part of the workload: a further call makes a wait
// shorter there, and may cost nothing.
void add_recorded(TracedWorkload& workload, const RankTrace& rank, const TracedBuckets& buckets,
                  const BucketCalls& calls) {
  const bool may_be_free = !workload.profile.host || workload.host_waits;
  models::RecordedStep& recorded = workload.profile.recorded.emplace();
  recorded.step = usual_step(rank.line);
  recorded.framework = "torch";
  recorded.is_copied =
      !rank.line.on_cpu &&
      std::ranges::all_of(buckets.buckets, [](const TracedBucket& b) { return b.copied; });
  recorded.micro_steps = std::max<std::int64_t>(1, rank.line.accumulation.reducing);
  recorded.call_low = may_be_free ? Duration{} : std::min(calls.quick, calls.mean);
  recorded.call_high = std::max(calls.slow, calls.mean);
  for (std::size_t b = 0, first = 0; b < workload.ends.size(); first = workload.ends[b++]) {
    std::vector<std::size_t>& bucket = recorded.buckets.emplace_back(workload.ends[b] - first);
    std::iota(bucket.begin(), bucket.end(), first);
  }
}

// What was recorded, by the bytes of the gradients where a hook sends other ones, and estimates of every other size that
// buckets of these gradients may have.
void add_collectives(models::Profile& profile, const JobTrace& job, const TracedBucket& bucket) {
  std::vector<std::pair<Bytes, Duration>> times = all_reduce_times(job);
  if (times.empty()) return;
  for (auto& [bytes, time] : times) {
    bytes = Bytes(bytes.count() * bucket.element_size.count() / bucket.sent_element.count());
  }
  profile.collectives.emplace();
  for (const auto& [bytes, time] : times) {
    profile.collectives->points.push_back({.bytes = bytes, .isolated = time});
  }
  Bytes all;
  for (const models::ProfiledGradient& gradient : profile.gradients) {
    all += schedule::element_size(gradient.dtype) * gradient.numel;
  }
  profile.collectives->estimated =
      models::CollectiveEstimate(times, profile.world_size).outside(all);
}

}  // namespace

bool stands_for_all(const RankTimeline& line, std::size_t step) {
  if (line.accumulation.reducing <= 1 || line.steps[step].updates) return true;
  return std::ranges::none_of(line.steps, &TracedStep::updates);
}

Duration usual_step(const RankTimeline& line) {
  const std::vector<TimedStep> steps = recorded_steps(line);
  std::vector<TimedStep> alike;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (stands_for_all(line, s)) alike.push_back(steps[s]);
  }
  return usual_step(alike);
}

RankReplay replay_rank(const RankTrace& rank) {
  RankReplay replay;
  replay.recorded = record_graph(rank.trace, rank.line);
  replay.timeline = played(replay.recorded.graph);
  replay.error = replay_error(replay.recorded, replay.timeline, rank.line);
  replay.buckets = imports::ddp_buckets(rank.trace, rank.line);
  return replay;
}

std::vector<std::pair<Bytes, Duration>> all_reduce_times(const JobTrace& job) {
  std::map<Bytes, Duration> shortest;
  const std::int64_t world = job.least_world_size();
  for (const RankTrace& rank : job.ranks) {
    for (std::size_t c = 0; c < rank.line.collectives.size(); ++c) {
      const TracedCollective& collective = rank.line.collectives[c];
      if (collective.kind != CollectiveKind::AllReduce || !collective.bytes) continue;
      if (collective.group_size.value_or(world) != world) continue;
      const Duration time = std::max(Duration(1), rank.transfer[c]);
      const auto [entry, added] = shortest.emplace(*collective.bytes, time);
      if (!added) entry->second = std::min(entry->second, time);
    }
  }
  std::vector<std::pair<Bytes, Duration>> times(shortest.begin(), shortest.end());
  for (std::size_t i = times.size(); i-- > 1;) {
    times[i - 1].second = std::min(times[i - 1].second, times[i].second);
  }
  return times;
}

bool is_sharded(const Recording& trace) { return trace.has(Is::Fsdp) || trace.has(Is::FsdpModule); }

Extracted workload_of(const JobTrace& job, std::size_t number, const RankReplay& replay,
                      const WorkloadOptions& options) {
  const RankTrace& rank = job.ranks[number];
  if (!replay.error.is_trustworthy()) {
    return "the replay of this trace misses its step times: no workload is made of it";
  }
  if (job.least_world_size() > (1 << 20)) return "a job of more than 1048576 ranks";
  if (is_sharded(rank.trace)) {
    return "a step of FSDP, which gathers parameters and reduces gradients by groups of modules: "
           "no workload of "
           "gradients in buckets can be made; dovetail diagnose reads it, and explore --job prices "
           "jobs of FSDP";
  }
  const bool any = std::ranges::any_of(
      replay.buckets, [](const TracedBuckets& step) { return !step.buckets.empty(); });
  if (!any) {
    return "no bucket of DistributedDataParallel in it (an all-reduce that backward launched): no "
           "workload can be made";
  }
  const bool is_unsized = std::ranges::all_of(replay.buckets, [](const TracedBuckets& step) {
    return std::ranges::all_of(step.buckets,
                               [](const TracedBucket& bucket) { return bucket.elements == 0; });
  });
  if (is_unsized) {
    return "the sizes of its all-reduces are not in the recording (what is not known says how they "
           "come into it): no workload can be made";
  }
  const QuietGraph graph(rank, replay, options.others);
  const QuietSteps quiet =
      quiet_steps(graph, Cutter(rank, replay.buckets, graph.recorded()), rank.line);
  if (quiet.steps.empty()) return "no backward on a GPU in it: no workload can be made";
  const TracedBuckets& buckets = replay.buckets[quiet.first];
  if (buckets.is_compressed) {
    return "a communication hook of DDP sends fewer elements than its buckets have (PowerSGD): "
           "what other buckets would send is not known, and no workload can be made";
  }
  TracedWorkload workload;
  workload.steps = quiet.steps.size();
  for (const TracedBucket& bucket : buckets.buckets) {
    const std::size_t before = workload.ends.empty() ? 0 : workload.ends.back();
    workload.ends.push_back(before + bucket.gradients.size());
  }
  for (const TracedBuckets& step : replay.buckets) workload.sizes_known &= step.sizes_known;
  workload.recorder = rank.trace.recorder;
  models::Profile& profile = workload.profile;
  profile.name = options.name;
  profile.world_size = job.world_size().value_or(std::max<std::int64_t>(2, std::ssize(job.ranks)));
  workload.host_waits = std::ranges::any_of(replay.recorded.origin, [](const Origin& origin) {
    return origin.kind == Origin::Kind::Return;
  });
  add_step(profile, quiet, buckets, options.host);
  const BucketCalls calls = graph.calls();
  profile.bucket_call = calls.mean;
  add_recorded(workload, rank, buckets, calls);
  add_collectives(profile, job, buckets.buckets.front());
  if (!rank.line.on_cpu) profile.copy_ns_per_byte = copy_ns_per_byte(rank, replay.buckets);
  add_host_note(workload, rank, replay);
  add_notes(workload, job, rank, buckets);
  profile.notes = workload.notes;
  return workload;
}

std::string workload_json(const TracedWorkload& workload) {
  return imports::profile_to_json(workload.profile,
                                  "imported from a recording of " +
                                      std::string(to_string(workload.recorder)) +
                                      ": the step without communication, median of " +
                                      std::to_string(workload.steps) + " steps");
}

}  // namespace dovetail::diagnose
