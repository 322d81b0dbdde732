// Lays out the median step of a trace for drawing: rows for the streams of each rank shown, spans
// clipped to the step's window, the ready times of the gradients in each bucket, and the cause of
// every stall.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/page/timeline.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/gradient.h"

namespace dovetail::report {
namespace {

using schedule::ScheduledProgram;
using traces::CommandInfo;
using traces::Span;
using traces::SpanKind;
using traces::Trace;

// The slowest rank first.
std::vector<Rank> ranks_shown(const Trace& trace, Rank slowest) {
  std::vector<Rank> ranks = {slowest};
  for (const Rank rank : trace.ranks) {
    if (rank != slowest && ranks.size() < kMostRanks) ranks.push_back(rank);
  }
  return ranks;
}

std::string_view what_of(const CommandInfo& info, const Span& span, const Timeline& line) {
  if (!line.has_breakdown && info.kind == SpanKind::Compute) return "kernel";
  if (!line.has_breakdown && info.kind == SpanKind::Enqueue) return "host call";
  switch (info.kind) {
    case SpanKind::Collective:
      return "collective";
    case SpanKind::Kernel:
      return "kernel";
    case SpanKind::Wait:
      return span.stream == traces::kComputeStream ? "stall" : "wait";
    default:
      return traces::to_string(traces::activity_of(info));
  }
}

// When gradients became ready on one rank in one step.
class ReadyTimes {
 public:
  ReadyTimes(const Trace& trace, const ScheduledProgram& program, Rank rank, std::int32_t step) {
    std::map<CommandId, Instant> ends;
    for (const Span& span : traces::spans_of(trace, rank)) {
      if (span.step == step) ends[span.command] = span.end;
    }
    std::map<OpId, const schedule::Op*> ops;
    for (const schedule::Op& op : program.program.ops) ops[op.id] = &op;
    for (const schedule::RankProgram& role : program.roles) {
      if (std::ranges::find(role.ranks, rank) == role.ranks.end()) continue;
      for (const schedule::Command& command : role.commands) {
        const std::optional<OpId> run = schedule::op_run_by(command);
        const auto end = ends.find(command.id);
        const auto op = run ? ops.find(*run) : ops.end();
        if (op == ops.end() || end == ends.end()) continue;
        if (op->second->phase == schedule::Phase::Optimizer) continue;
        for (const TensorId tensor : op->second->writes) ready_[tensor] = end->second;
      }
    }
  }
  [[nodiscard]] std::optional<Instant> of(TensorId gradient) const {
    const auto found = ready_.find(gradient);
    return found == ready_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<TensorId, Instant> ready_;
};

std::vector<TimelineBucket> buckets_of(const ScheduledProgram& program, const ReadyTimes& ready,
                                       Instant origin) {
  std::map<TensorId, const schedule::Tensor*> tensors;
  for (const schedule::Tensor& tensor : program.program.tensors) tensors[tensor.id] = &tensor;
  std::vector<TimelineBucket> buckets;
  for (const schedule::BucketLayout& layout : program.buckets) {
    TimelineBucket bucket{layout.bucket, layout.size, {}};
    for (const schedule::BucketMember& member : layout.members) {
      const schedule::Tensor& tensor = *tensors.at(member.tensor);
      TimelineGradient gradient;
      gradient.name = tensor.name;
      gradient.bytes = element_size(tensor.dtype) * member.elements(tensor);
      const std::optional<Instant> at = ready.of(member.tensor);
      if (at && schedule::is_gradient(tensor.kind)) gradient.ready = *at - origin;
      bucket.gradients.push_back(std::move(gradient));
    }
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

// What neighbours that are drawn as one did.
struct Fold {
  std::string first = {};  // name
  std::int64_t spans = 0;
  std::map<std::string, Duration> times = {};

  void add(const TimelineSpan& span) {
    ++spans;
    times[span.what] += span.end - span.start;
  }
  [[nodiscard]] const std::string& longest() const {
    return std::ranges::max_element(times, {}, [](const auto& time) { return time.second; })->first;
  }
};

// What stages of a pipeline send each other, by the commands that send and receive it.
using Messages = std::map<CommandId, const schedule::Transfer*>;

Messages messages_of(const ScheduledProgram& program) {
  Messages messages;
  for (const schedule::RankProgram& role : program.roles) {
    for (const schedule::Command& command : role.commands) {
      if (!command.transfer) continue;
      const schedule::Transfer& transfer = program.transfer(command);
      if (transfer.kind == schedule::Collective::SendRecv) messages[command.id] = &transfer;
    }
  }
  return messages;
}

// Fills the rows of one rank.
class RankRows {
 public:
  // What all ranks share.
  struct Of {
    const Trace& trace;
    const Messages& messages;
    Duration grain;                            // shorter spans are folded
    std::span<const traces::Interval> bubble;  // of this rank
  };
  RankRows(const Of& of, Timeline& line, Rank rank)
      : trace_(of.trace),
        messages_(of.messages),
        grain_(of.grain),
        bubble_(of.bubble),
        line_(line),
        rank_(rank) {
    // While the compute stream stalls nothing runs on it.
    std::ranges::copy_if(traces::spans_of(trace_, rank), std::back_inserter(collectives_),
                         [&](const Span& span) {
                           return span.stream != traces::kComputeStream &&
                                  trace_.command(span.command).kind == SpanKind::Collective;
                         });
  }

  void add() {
    for (const traces::StreamInfo& stream : trace_.streams) {
      const auto spans = traces::spans_of(trace_, rank_, stream.id);
      if (std::ranges::none_of(spans, [&](const Span& span) { return is_shown(span); })) continue;
      if (std::ranges::any_of(spans,
                              [&](const Span& span) { return messages_.contains(span.command); })) {
        continue;  // drawn as arrows
      }
      line_.rows.push_back({rank_, stream.id, stream.name});
      add_stream(spans);
    }
  }

 private:
  // Also what other steps put into the window: in a steady state they overlap.
  [[nodiscard]] bool is_shown(const Span& span) const {
    const Instant end = line_.report.start + line_.report.step_time;
    return span.step == line_.step || (span.end > line_.report.start && span.start < end);
  }

  void add_stream(std::span<const Span> spans) {
    const Span* before = nullptr;
    for (const Span& span : spans) {
      if (!is_shown(span)) continue;
      add_gap(before, span);
      add_span(span);
      before = &span;
    }
  }

  void add_span(const Span& span) {
    const CommandInfo& info = trace_.command(span.command);
    TimelineSpan shown;
    shown.row = line_.rows.size() - 1;
    shown.what = what_of(info, span, line_);
    shown.name = info.name;
    // A wait can begin before its step and, of another stage, end behind it; it is cut there.
    const bool waits = info.kind == SpanKind::Wait;
    const Instant step_end = line_.report.start + line_.report.step_time;
    const Instant from = waits ? std::max(span.start, line_.report.start) : span.start;
    const Instant to = waits ? std::min(span.end, step_end) : span.end;
    if (from >= to && waits) return;
    shown.start = from - line_.report.start;
    shown.end = to - line_.report.start;
    if (span.transfer_start) shown.transfer_start = *span.transfer_start - line_.report.start;
    shown.bucket = info.bucket;
    shown.bytes = info.bytes;
    if (shown.what == "stall") {
      const Stall stall{&info, span.step, from, to};
      const ByCause causes = causes_of(trace_, collectives_, stall);
      shown.why = in_words(stall, causes);
      if (rank_ == line_.report.rank && span.step == line_.step) line_.stalls += causes;
    } else if (shown.what == "wait") {
      shown.why = why_not_ready(info.bucket);
    }
    push_with_bubble(std::move(shown));
  }

  // The part of a stall that is bubble stands alone; the rest is the message's own transfer.
  void push_with_bubble(TimelineSpan shown) {
    if (shown.what == "stall") {
      const Duration start = shown.start;
      const auto bubble = std::ranges::find_if(bubble_, [&](const traces::Interval& moment) {
        return moment.end - line_.report.start > start;
      });
      if (bubble != bubble_.end() && bubble->start - line_.report.start <= start) {
        TimelineSpan part = shown;
        part.what = "bubble";
        part.end = std::min(shown.end, bubble->end - line_.report.start);
        shown.start = part.end;
        push(std::move(part));
        if (shown.start == shown.end) return;
      }
    }
    push(std::move(shown));
  }

  // Neighbours that are too short to be seen become one.
  void push(TimelineSpan shown) {
    TimelineSpan* const last =
        line_.spans.empty() || line_.spans.back().row != shown.row ? nullptr : &line_.spans.back();
    const auto is_short = [&](const TimelineSpan& span) { return span.end - span.start < grain_; };
    if (last == nullptr || !is_short(*last) || !is_short(shown) ||
        shown.start - last->end >= grain_) {
      fold_ = {.first = shown.name};
      fold_.add(shown);
      line_.spans.push_back(std::move(shown));
      return;
    }
    fold_.add(shown);
    last->name = std::to_string(fold_.spans) + " too short to be drawn: " + fold_.first + " to " +
                 shown.name;
    last->what = fold_.longest();
    last->end = std::max(last->end, shown.end);
    last->bytes += shown.bytes;
    last->transfer_start = std::nullopt;
    last->bucket = std::nullopt;
    last->why = "";
  }

  // What the stream did not know how to begin.
  void add_gap(const Span* before, const Span& next) {
    const Instant from =
        std::max(before == nullptr ? line_.report.start : before->end, line_.report.start);
    if (next.start <= from) return;
    TimelineSpan gap;
    gap.row = line_.rows.size() - 1;
    gap.what = "gap";
    gap.start = from - line_.report.start;
    gap.end = next.start - line_.report.start;
    const CommandInfo& info = trace_.command(next.command);
    if (!line_.has_breakdown) {
      gap.name = "nothing";
      gap.why = "until " + info.name + " was launched";
    } else if (next.stream == traces::kComputeStream) {
      gap.name = "idle";
      gap.why = "nothing was issued: " + info.name + " had not reached the stream";
    } else {
      gap.name = "no collective";
      gap.why = why_not_ready(info.bucket);
      if (gap.why.empty()) gap.why = "until " + info.name + " was launched";
    }
    push(std::move(gap));
  }

  // Which gradient of a bucket came last.
  [[nodiscard]] std::string why_not_ready(std::optional<BucketId> id) const {
    if (!id) return {};
    const auto bucket = std::ranges::find(line_.buckets, *id, &TimelineBucket::id);
    const std::string name = "bucket " + std::to_string(id->value);
    if (bucket == line_.buckets.end()) return "until " + name + " was launched";
    const TimelineGradient* last = nullptr;
    for (const TimelineGradient& gradient : bucket->gradients) {
      if (gradient.ready && (last == nullptr || *gradient.ready > *last->ready)) last = &gradient;
    }
    if (last == nullptr) return "until " + name + " was launched";
    return "until " + name + " was ready and launched: its last gradient, " + last->name +
           ", was ready at " + dovetail::to_string(*last->ready);
  }

  const Trace& trace_;
  const Messages& messages_;
  Duration grain_;
  std::span<const traces::Interval> bubble_;
  Timeline& line_;
  Rank rank_;
  std::vector<Span> collectives_;  // that can be waited for
  Fold fold_;                      // into the last one
};

// Those of the step whose two ranks are both shown.
std::vector<TimelineArrow> arrows_of(const Trace& trace, const ScheduledProgram& program,
                                     const Messages& messages, const Timeline& line) {
  const auto row_of = [&](Rank rank) -> std::optional<std::size_t> {
    const auto row = std::ranges::find_if(line.rows, [&](const TimelineRow& each) {
      return each.rank == rank && each.stream == traces::kComputeStream;
    });
    if (row == line.rows.end()) return std::nullopt;
    return static_cast<std::size_t>(row - line.rows.begin());
  };
  std::vector<TimelineArrow> arrows;
  for (const Span& span : trace.spans) {
    const auto message = messages.find(span.command);
    if (span.step != line.step || message == messages.end()) continue;
    const schedule::Transfer& transfer = *message->second;
    const std::span<const Rank> pair = program.program.group(transfer.group).instance_of(span.rank);
    if (pair.size() != 2 || pair[static_cast<std::size_t>(transfer.root)] != span.rank) continue;
    const auto from = row_of(span.rank);
    const auto to = row_of(pair[static_cast<std::size_t>(1 - transfer.root)]);
    if (!from || !to) continue;
    arrows.push_back({.from_row = *from,
                      .to_row = *to,
                      .name = trace.command(span.command).name,
                      .bytes = transfer.bytes,
                      .start = span.transfer_start.value_or(span.start) - line.report.start,
                      .end = span.end - line.report.start});
  }
  return arrows;
}

// What is shorter cannot be seen where there are so many spans that a page of all would be too large.
Duration grain_of(const Trace& trace, const Timeline& line, std::size_t ranks) {
  constexpr std::int64_t kSeen = 1000;  // parts of a step
  const auto spans = static_cast<double>(trace.spans.size()) / trace.steps *
                     (static_cast<double>(ranks) / static_cast<double>(trace.ranks.size()));
  return spans > static_cast<double>(kMostSpans) ? line.report.step_time / kSeen : Duration{};
}

std::vector<TimelinePath> path_of(const Trace& trace, const traces::CriticalPath& path,
                                  const Timeline& line) {
  std::vector<TimelinePath> parts;
  for (const traces::PathPart& part : traces::path_parts(trace, path, line.step)) {
    TimelinePath shown;
    const auto row = std::ranges::find_if(line.rows, [&](const TimelineRow& each) {
      return each.rank == part.rank && each.stream == part.stream;
    });
    if (row != line.rows.end()) shown.row = static_cast<std::size_t>(row - line.rows.begin());
    shown.kind = traces::to_string(part.kind);
    shown.what = part.what;
    shown.start = part.start;
    shown.end = part.start + part.time;
    parts.push_back(std::move(shown));
  }
  return parts;
}

}  // namespace

Timeline timeline(const Trace& trace, const TimelineOptions& options) {
  Timeline line;
  line.title = options.title;
  line.provenance = trace.provenance;
  line.world_size = trace.world_size;
  line.steps = trace.steps;
  line.has_breakdown = options.compute == ComputeStream::First;
  line.report = traces::median_step(trace);
  line.step = line.report.step;
  line.spread = traces::spread(traces::step_times(trace));
  if (options.program != nullptr) {
    const ReadyTimes ready(trace, *options.program, line.report.rank, line.step);
    line.buckets = buckets_of(*options.program, ready, line.report.start);
  }
  const std::vector<Rank> ranks = ranks_shown(trace, line.report.rank);
  line.ranks_left_out = trace.ranks.size() - ranks.size();
  const Duration grain = grain_of(trace, line, ranks.size());
  const Messages messages = options.program == nullptr ? Messages{} : messages_of(*options.program);
  for (const Rank rank : ranks) {
    const auto bubble = options.bubbles.find(rank);
    std::span<const traces::Interval> moments;
    if (bubble != options.bubbles.end()) moments = bubble->second;
    if (rank == line.report.rank && !moments.empty()) line.bubble = traces::length(moments);
    RankRows({trace, messages, grain, moments}, line, rank).add();
  }
  std::ranges::copy_if(options.memory, std::back_inserter(line.memory),
                       [&](const traces::RankMemory& held) {
                         return std::ranges::find(ranks, held.rank) != ranks.end();
                       });
  line.capacity = options.capacity;
  if (options.program != nullptr) line.arrows = arrows_of(trace, *options.program, messages, line);
  if (options.path != nullptr) line.path = path_of(trace, *options.path, line);
  return line;
}

}  // namespace dovetail::report
