// A step's spans are the nodes of its graph between its markers; the times are the trace's own or those of a replay. The file
// for viewers also says what a page draws by itself: phases, operators, what launched a collective and why it is exposed. Best
// buckets are shown as the simulator plays the imported workload with them, three steps: the first stands still at its start.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/step_traces.h"

#include "recordings/diagnose/words.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "recordings/diagnose/causes.h"
#include "recordings/diagnose/host_time.h"
#include "recordings/diagnose/what_if.h"
#include "sim/simulate.h"
#include "traces/perfetto.h"
#include "traces/trace.h"

namespace dovetail::diagnose {
namespace {

// Which part of the step a call of the host belongs to, and what it launches: by autograd's passes, as host_time.h has them.
// Communication, which no track of phases shows, where the step has none of them.
class Phases {
 public:
  explicit Phases(const RankTrace& rank) : line_(rank.line), optimizer_(optimizer_calls(rank)) {}

  [[nodiscard]] traces::SpanPhase of_call(std::size_t call, const TracedStep& step) const {
    if (optimizer_.inside[call] != 0) return traces::SpanPhase::Optimizer;
    return at(line_.calls[call].start, step);
  }
  [[nodiscard]] traces::SpanPhase at(Instant time, const TracedStep& step) const {
    bool is_behind = false;
    bool is_known = false;
    for (const imports::BackwardPass& pass : line_.passes) {
      if (pass.begin < step.start || pass.begin >= step.end) continue;
      is_known = true;
      if (pass.begin <= time && time < pass.end) return traces::SpanPhase::Backward;
      is_behind = time >= pass.end;
    }
    if (!is_known) return traces::SpanPhase::Communication;
    return is_behind ? traces::SpanPhase::Optimizer : traces::SpanPhase::Forward;
  }

 private:
  const RankTimeline& line_;
  OptimizerCalls optimizer_;
};

// What only a viewer's file says beyond times.
struct Remarks {
  Phases phases;
  const TracedBuckets& buckets;  // of the step
  const StepCauses& causes;      // likewise
  const Diagnosis& diagnosis;
  const RankDiagnosis& rank;
};

// Builds the Trace of one step of one rank.
class StepTrace {
 public:
  StepTrace(const RankTrace& rank, const RecordedGraph& recorded, std::size_t step,
            const Remarks* remarks = nullptr)
      : rank_(rank), recorded_(recorded), step_(step), remarks_(remarks) {}

  // Times by node.
  traces::Trace build(const step::Timeline& times, traces::Origin origin,
                      const std::string& policy) {
    traces::Trace trace;
    trace.provenance.origin = origin;
    trace.provenance.policy = policy;
    trace.provenance.workload = rank_.trace.file;
    trace.provenance.backend = origin == traces::Origin::Measured ? "cuda" : "replay";
    trace.world_size = std::max<std::int64_t>(1, rank_.trace.world_size.value_or(1));
    trace.ranks = {Rank{static_cast<std::int32_t>(rank_.rank)}};
    add_streams(trace);
    const RecordedGraph::Step& step = recorded_.steps[step_];
    const std::int64_t zero = times.start_of(step.begin);
    if (remarks_ != nullptr) trace.provenance.notes[traces::kStepNameNote] = traced().name;
    for (step::NodeId node = step.begin; node <= step.end; ++node) {
      if (recorded_.origin_of(node).kind == Origin::Kind::Call) add(trace, node, times, zero);
    }
    for (const step::NodeId node : recorded_.works[step_]) add(trace, node, times, zero);
    if (remarks_ != nullptr && origin == traces::Origin::Measured) add_operators(trace);
    untangle(trace);
    return trace;
  }

 private:
  [[nodiscard]] StreamId host_stream() const {
    return StreamId{static_cast<std::int32_t>(rank_.line.streams.size())};
  }

  [[nodiscard]] const TracedStep& traced() const { return rank_.line.steps[step_]; }

  void add_streams(traces::Trace& trace) const {
    for (std::size_t i = 0; i < rank_.line.streams.size(); ++i) {
      const imports::TracedStream& stream = rank_.line.streams[i];
      trace.streams.push_back(
          {StreamId{static_cast<std::int32_t>(i)},
           (stream.communicates ? "comm stream " : "stream ") + std::to_string(stream.id)});
    }
    trace.streams.push_back({host_stream(), "host"});
  }

  [[nodiscard]] std::string event_name(std::int32_t event) const {
    return rank_.trace.name_of(rank_.trace.events[static_cast<std::size_t>(event)]);
  }

  void add(traces::Trace& trace, step::NodeId node, const step::Timeline& times,
           std::int64_t zero) {
    const Origin& origin = recorded_.origin_of(node);
    const auto index = static_cast<std::size_t>(origin.index);
    traces::CommandInfo info;
    info.id = CommandId{static_cast<std::int32_t>(trace.commands.size())};
    StreamId stream = host_stream();
    std::int64_t end = times.end_of(node);
    if (origin.kind == Origin::Kind::Call) {
      info.kind = traces::SpanKind::Enqueue;
      info.name = event_name(rank_.line.calls[index].event);
      end = times.end_of(*recorded_.node_of_call[index]);  // of its return, where it has one
      if (remarks_ != nullptr) {
        info.phase = remarks_->phases.of_call(index, traced());
        command_of_call_[static_cast<std::int32_t>(index)] = info.id;
      }
    } else {
      const imports::GpuWork& work = rank_.line.works[index];
      stream = StreamId{work.stream};
      info.kind = traces::SpanKind::Compute;
      info.name = event_name(work.event);
      if (work.collective != kNone) describe(info, work.collective);
      if (remarks_ != nullptr) remark(info, work);
    }
    trace.spans.push_back({info.id,
                           trace.ranks.front(),
                           stream,
                           0,
                           Instant(Duration(times.start_of(node) - zero)),
                           Instant(Duration(end - zero)),
                           {}});
    trace.commands.push_back(std::move(info));
  }

  void describe(traces::CommandInfo& info, std::int32_t collective) const {
    const auto& c = rank_.line.collectives[static_cast<std::size_t>(collective)];
    info.kind = traces::SpanKind::Collective;
    info.name =
        std::string(to_string(c.kind)) + (c.bytes ? " of " + dovetail::to_string(*c.bytes) : "");
    info.bytes = c.bytes.value_or(Bytes(0));
  }

  void remark(traces::CommandInfo& info, const GpuWork& work) const {
    if (work.collective == kNone) {
      info.phase = work.launch == kNone
                       ? remarks_->phases.at(work.start, traced())
                       : remarks_->phases.of_call(static_cast<std::size_t>(work.launch), traced());
      return;
    }
    const auto launch = command_of_call_.find(work.launch);
    if (launch != command_of_call_.end()) info.after = launch->second;
    const auto bucket = std::ranges::find(remarks_->buckets.buckets, work.collective,
                                          &imports::TracedBucket::collective);
    ExposedCollective which{.collective = work.collective};
    if (bucket != remarks_->buckets.buckets.end()) {
      which.bucket = static_cast<std::int32_t>(bucket - remarks_->buckets.buckets.begin());
      info.bucket = BucketId{which.bucket};
    }
    info.name += of_which(remarks_->rank, which);
    const auto exposed = std::ranges::find(remarks_->causes.collectives, work.collective,
                                           &ExposedCollective::collective);
    if (exposed == remarks_->causes.collectives.end()) return;
    const auto most = std::ranges::max_element(exposed->by);
    info.remarks["exposed"] = dovetail::to_string(exposed->exposed);
    info.remarks["cause"] =
        in_words(static_cast<Cause>(most - exposed->by.begin()), remarks_->diagnosis);
  }

  // Annotations and operators of threads that launch work, the outermost ones of each kind, a stream a thread and kind.
  void add_operators(traces::Trace& trace) const {
    struct Lane {
      StreamId stream;
      Instant busy_until;
    };
    std::map<std::pair<std::int32_t, EventKind>, Lane> lanes;
    std::int32_t threads = 0;
    for (const HostCall& call : rank_.line.calls) {
      if (lanes.contains({call.thread, EventKind::Operator})) continue;
      const std::string thread = " of thread " + std::to_string(++threads);
      for (const EventKind kind : {EventKind::Annotation, EventKind::Operator}) {
        const StreamId stream{static_cast<std::int32_t>(trace.streams.size())};
        lanes[{call.thread, kind}] = {stream, traced().start};
        trace.streams.push_back(
            {stream, (kind == EventKind::Operator ? "operators" : "annotations") + thread});
      }
    }
    for (const RecordedEvent& event : rank_.trace.events) {
      const auto lane = lanes.find({event.thread, event.kind});
      const Instant start = rank_.line.instant(event.start_ns);
      const Instant end = rank_.line.instant(event.end_ns());
      if (lane == lanes.end() || end > traced().end) continue;
      if (start < lane->second.busy_until) continue;  // within another, or before the step
      const std::string name(rank_.trace.name_of(event));
      if (name == traced().name) continue;
      lane->second.busy_until = end;
      traces::CommandInfo info;
      info.id = CommandId{static_cast<std::int32_t>(trace.commands.size())};
      info.kind = traces::SpanKind::Enqueue;
      info.phase = remarks_->phases.at(start, traced());
      info.name = name;
      trace.spans.push_back({info.id,
                             trace.ranks.front(),
                             lane->second.stream,
                             0,
                             Instant(start - traced().start),
                             Instant(end - traced().start),
                             {}});
      trace.commands.push_back(std::move(info));
    }
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
  const RecordedGraph& recorded_;
  std::size_t step_;
  const Remarks* remarks_;                             // of a file for viewers; else null
  std::map<std::int32_t, CommandId> command_of_call_;  // with remarks
};

// The times of the trace itself, by node.
step::Timeline recorded_times(const RankTrace& rank, const RecordedGraph& recorded) {
  step::Timeline times;
  const auto nodes = static_cast<std::size_t>(recorded.graph.size());
  times.start.resize(nodes);
  times.end.resize(nodes);
  const auto set = [&](std::size_t n, Instant start, Instant end) {
    times.start[n] = (start - recorded.zero).count();
    times.end[n] = (end - recorded.zero).count();
  };
  for (std::size_t n = 0; n < nodes; ++n) {
    const auto index = static_cast<std::size_t>(recorded.origin[n].index);
    switch (recorded.origin[n].kind) {
      case Origin::Kind::Work:
        set(n, rank.line.works[index].start, rank.line.works[index].end);
        break;
      case Origin::Kind::Call:
      case Origin::Kind::Return:
        set(n, rank.line.calls[index].start, rank.line.calls[index].end);
        break;
      case Origin::Kind::StepBegin:
        set(n, rank.line.steps[index].start, rank.line.steps[index].start);
        break;
      case Origin::Kind::StepEnd:
        set(n, rank.line.steps[index].end, rank.line.steps[index].end);
        break;
    }
  }
  return times;
}

traces::Trace recorded_step(const RankTrace& rank, const RecordedGraph& recorded,
                            std::size_t step) {
  return StepTrace(rank, recorded, step)
      .build(recorded_times(rank, recorded), traces::Origin::Measured, "recorded");
}

// The last step that ran anything.
std::optional<std::size_t> shown_step(const RankTrace& rank) {
  for (std::size_t s = rank.line.steps.size(); s-- > 0;) {
    if (!rank.line.steps[s].works.empty()) return s;
  }
  return std::nullopt;
}

// The imported workload with the best buckets, as the simulator plays it.
traces::Trace with_best_buckets(const RankTrace& rank, const RankForecast& own,
                                const BucketAdvice& advice) {
  const BucketSetting& best = advice.settings[advice.best];
  Forecast forecast(*own.workload, own.workload->profile);
  search::Planner& planner = forecast.planner();
  traces::Trace trace =
      sim::simulate(planner.verified(best.schedule), planner.costs(), {.steps = 3});
  trace.provenance.policy = short_setting(best);
  trace.provenance.workload = rank.trace.file;
  return trace;
}

}  // namespace

std::vector<traces::Trace> last_steps(const JobTrace& job, const Diagnosis& diagnosis) {
  std::vector<traces::Trace> steps;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const std::optional<std::size_t> step = shown_step(job.ranks[r]);
    if (!step) continue;
    steps.push_back(recorded_step(job.ranks[r], diagnosis.ranks[r].replay.recorded, *step));
  }
  return steps;
}

namespace {

// With remarks, of a viewer's file.
std::vector<traces::Trace> shown_traces(const JobTrace& job, const Diagnosis& diagnosis,
                                        bool with_remarks) {
  std::vector<traces::Trace> shown;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    const RankTrace& rank = job.ranks[r];
    const RankReplay& replay = diagnosis.ranks[r].replay;
    const std::optional<std::size_t> step = shown_step(rank);
    if (!step) continue;
    std::optional<Remarks> remarks;
    if (with_remarks) {
      remarks.emplace(Remarks{Phases(rank), replay.buckets[*step], diagnosis.ranks[r].causes[*step],
                              diagnosis, diagnosis.ranks[r]});
    }
    const Remarks* const said = remarks ? &*remarks : nullptr;
    shown.push_back(
        StepTrace(rank, replay.recorded, *step, said)
            .build(recorded_times(rank, replay.recorded), traces::Origin::Measured, "recorded"));
    shown.push_back(StepTrace(rank, replay.recorded, *step, said)
                        .build(replay.timeline, traces::Origin::Simulated, "replay"));
    if (r > 0 || !diagnosis.buckets) continue;
    shown.push_back(with_best_buckets(rank, diagnosis.ranks[r].forecast, *diagnosis.buckets));
  }
  return shown;
}

}  // namespace

std::vector<traces::Trace> step_traces(const JobTrace& job, const Diagnosis& diagnosis) {
  return shown_traces(job, diagnosis, false);
}

std::string perfetto_of(const JobTrace& job, const Diagnosis& diagnosis) {
  const std::vector<traces::Trace> shown = shown_traces(job, diagnosis, true);
  std::vector<const traces::Trace*> traces;
  for (const traces::Trace& trace : shown) traces.push_back(&trace);
  return traces::perfetto_json(
      traces, {.alignment = traces::Alignment::AsGiven, .compute = traces::ComputeWork::AnyStream});
}

}  // namespace dovetail::diagnose
