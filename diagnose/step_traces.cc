// Recorded and replayed steps as Traces.
//
// SPDX-License-Identifier: Apache-2.0
#include "diagnose/step_traces.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "diagnose/what_if.h"
#include "diagnose/workload.h"
#include "traces/perfetto.h"
#include "traces/trace.h"

namespace dovetail::diagnose {
namespace {

// Builds the Trace of one step of one rank.
class StepTrace {
 public:
  StepTrace(const RankTrace& rank, const ReplayModel& model, std::int32_t step)
      : rank_(rank), model_(model), step_(step) {}

  // Times by node of the model.
  traces::Trace build(const std::vector<Instant>& start, const std::vector<Instant>& end,
                      traces::Origin origin, const std::string& policy) {
    traces::Trace trace;
    trace.provenance.origin = origin;
    trace.provenance.policy = policy;
    trace.provenance.workload = rank_.trace.file;
    trace.provenance.backend = origin == traces::Origin::Measured ? "cuda" : "replay";
    trace.world_size = std::max<std::int64_t>(1, rank_.trace.world_size.value_or(1));
    trace.ranks = {Rank{static_cast<std::int32_t>(rank_.rank)}};
    add_streams(trace);
    const Range range = host_range();
    const Instant origin_time = start[static_cast<std::size_t>(range.begin)];
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      const ReplayNode& node = model_.nodes[i];
      const bool host = node.kind == ReplayNode::Kind::Host;
      if (host && (node.call == kNone || !range.holds(i))) continue;
      if (!host && node.step != step_) continue;
      add(trace, node, start[i], end[i], origin_time);
    }
    untangle(trace);
    return trace;
  }

 private:
  struct Range {
    std::int32_t begin = 0, end = 0;
    [[nodiscard]] bool holds(std::size_t i) const {
      return i >= static_cast<std::size_t>(begin) && i <= static_cast<std::size_t>(end);
    }
  };
  [[nodiscard]] Range host_range() const {
    const ReplayStep& step = model_.steps[static_cast<std::size_t>(step_)];
    return {step.begin, step.end};
  }
  [[nodiscard]] StreamId host_stream() const {
    return StreamId{static_cast<std::int32_t>(rank_.line.streams.size())};
  }

  void add_streams(traces::Trace& trace) const {
    for (std::size_t i = 0; i < rank_.line.streams.size(); ++i) {
      const imports::TracedStream& stream = rank_.line.streams[i];
      trace.streams.push_back(
          {StreamId{static_cast<std::int32_t>(i)},
           (stream.communicates ? "comm stream " : "stream ") + std::to_string(stream.id)});
    }
    trace.streams.push_back({host_stream(), "host"});
  }

  [[nodiscard]] std::string name_of(const ReplayNode& node) const {
    if (node.kind == ReplayNode::Kind::Host) {
      const HostCall& call = rank_.line.calls[static_cast<std::size_t>(node.call)];
      return rank_.trace.name_of(rank_.trace.events[static_cast<std::size_t>(call.event)]);
    }
    if (node.work == kNone) return "all-reduce of another bucket";
    const GpuWork& work = rank_.line.works[static_cast<std::size_t>(node.work)];
    if (work.collective != kNone) {
      const auto& c = rank_.line.collectives[static_cast<std::size_t>(work.collective)];
      return std::string(to_string(c.kind)) +
             (c.bytes ? " of " + dovetail::to_string(*c.bytes) : "");
    }
    return rank_.trace.name_of(rank_.trace.events[static_cast<std::size_t>(work.event)]);
  }

  // Of a collective; 0 where the trace does not say.
  [[nodiscard]] Bytes bytes_of(const ReplayNode& node) const {
    const GpuWork& work = rank_.line.works[static_cast<std::size_t>(node.work)];
    if (work.collective == kNone) return Bytes(0);
    return rank_.line.collectives[static_cast<std::size_t>(work.collective)].bytes.value_or(
        Bytes(0));
  }

  void add(traces::Trace& trace, const ReplayNode& node, Instant start, Instant end,
           Instant origin) {
    const bool host = node.kind == ReplayNode::Kind::Host;
    const CommandId id{static_cast<std::int32_t>(trace.commands.size())};
    traces::CommandInfo info;
    info.id = id;
    info.kind = host                ? traces::SpanKind::Enqueue
                : node.communicates ? traces::SpanKind::Collective
                                    : traces::SpanKind::Compute;
    info.name = name_of(node);
    if (node.communicates && node.work != kNone) info.bytes = bytes_of(node);
    trace.commands.push_back(std::move(info));
    const Rank rank = trace.ranks.front();
    const StreamId stream = host ? host_stream() : StreamId{node.stream};
    trace.spans.push_back(
        {id, rank, stream, 0, Instant(start - origin), Instant(end - origin), {}});
  }

  // Spans of one stream must not overlap: work of one graph launch may, by some microseconds.
  static void untangle(traces::Trace& trace) {
    std::ranges::stable_sort(trace.spans, {}, [](const traces::Span& span) {
      return std::tuple(span.stream, span.start);
    });
    for (std::size_t i = 1; i < trace.spans.size(); ++i) {
      traces::Span& now = trace.spans[i];
      const traces::Span& before = trace.spans[i - 1];
      if (now.stream != before.stream) continue;
      now.start = std::max(now.start, before.end);
      now.end = std::max(now.end, now.start);
    }
  }

  const RankTrace& rank_;
  const ReplayModel& model_;
  std::int32_t step_;
};

// The times of the trace itself, by node.
std::pair<std::vector<Instant>, std::vector<Instant>> recorded(const RankTrace& rank,
                                                               const ReplayModel& model) {
  std::pair<std::vector<Instant>, std::vector<Instant>> times;
  times.first.resize(model.nodes.size());
  times.second.resize(model.nodes.size());
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const ReplayNode& node = model.nodes[i];
    if (node.work != kNone) {
      times.first[i] = rank.line.works[static_cast<std::size_t>(node.work)].start;
      times.second[i] = rank.line.works[static_cast<std::size_t>(node.work)].end;
    } else if (node.call != kNone) {
      times.first[i] = rank.line.calls[static_cast<std::size_t>(node.call)].start;
      times.second[i] = rank.line.calls[static_cast<std::size_t>(node.call)].end;
    }
  }
  for (std::size_t s = 0; s < model.steps.size(); ++s) {
    times.first[static_cast<std::size_t>(model.steps[s].begin)] = rank.line.steps[s].start;
    times.second[static_cast<std::size_t>(model.steps[s].begin)] = rank.line.steps[s].start;
  }
  return times;
}

traces::Trace recorded_step(const RankTrace& rank, const ReplayModel& model, std::int32_t step) {
  const auto [start, end] = recorded(rank, model);
  return StepTrace(rank, model, step).build(start, end, traces::Origin::Measured, "recorded");
}

// The last step that ran anything.
std::int32_t shown_step(const RankTrace& rank) {
  for (std::size_t s = rank.line.steps.size(); s-- > 0;) {
    if (!rank.line.steps[s].works.empty()) return static_cast<std::int32_t>(s);
  }
  return kNone;
}

}  // namespace

std::vector<traces::Trace> recorded_steps(const JobTrace& job, const Diagnosis& diagnosis) {
  std::vector<traces::Trace> steps;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const std::int32_t step = shown_step(job.ranks[r]);
    if (step == kNone) continue;
    steps.push_back(recorded_step(job.ranks[r], diagnosis.ranks[r].model, step));
  }
  return steps;
}

std::vector<traces::Trace> step_traces(const JobTrace& job, const Diagnosis& diagnosis) {
  std::vector<traces::Trace> shown;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankTrace& rank = job.ranks[r];
    const RankDiagnosis& own = diagnosis.ranks[r];
    const std::int32_t step = shown_step(rank);
    if (step == kNone) continue;
    shown.push_back(recorded_step(rank, own.model, step));
    const Replay replay = play(own.model);
    shown.push_back(StepTrace(rank, own.model, step)
                        .build(replay.start, replay.end, traces::Origin::Simulated, "replay"));
    if (r > 0 || !diagnosis.buckets) continue;
    const BucketSetting& best = diagnosis.buckets->settings[diagnosis.buckets->best];
    const AllReduceCost cost(all_reduce_times(job), AllReduceCost::Below::Pessimist);
    const ReplayModel model =
        with_buckets(rank, own.model, own.buckets, best.ends, cost, {.in_flight = best.in_flight});
    const Replay other = play(model);
    shown.push_back(
        StepTrace(rank, model, step)
            .build(other.start, other.end, traces::Origin::Simulated, short_setting(best)));
  }
  return shown;
}

std::string perfetto_of(const JobTrace& job, const Diagnosis& diagnosis) {
  const std::vector<traces::Trace> shown = step_traces(job, diagnosis);
  std::vector<const traces::Trace*> traces;
  for (const traces::Trace& trace : shown) traces.push_back(&trace);
  return traces::perfetto_json(
      traces, {.alignment = traces::Alignment::AsGiven, .compute = traces::ComputeWork::AnyStream});
}

}  // namespace dovetail::diagnose
