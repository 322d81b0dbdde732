// Writes traces as one file for Perfetto: which process and track each span belongs to, its
// arguments, the arrows between spans, and where each trace comes from.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/perfetto.h"

#include "base/error.h"
#include "traces/json_text.h"
#include "traces/metrics.h"
#include "traces/perfetto_events.h"
#include "traces/trace_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace dovetail::traces {
namespace {

constexpr std::int64_t kSteps = 0;
constexpr std::int64_t kPhases = 1;
constexpr std::int64_t kFirstStream = 2;  // of a process without a critical path

// A trace and where it is shown.
struct View {
  const Trace* trace = nullptr;
  const CriticalPath* path = nullptr;  // where it is known
  std::string name;                    // "predicted"; with what tells it from the others
  std::vector<StepWindow> windows;
  std::int32_t median = 0;
  Duration shift{};  // from its times to those of the file

  [[nodiscard]] Duration shown(Instant at) const { return at.time_since_epoch() + shift; }
};

// Adds to each name what the function says, where several are alike.
template <class Say>
void tell_apart(std::vector<View>& views, Say say) {
  std::map<std::string, std::int64_t> count;
  for (const View& view : views) ++count[view.name];
  for (View& view : views) {
    const std::string more = say(view);
    if (count[view.name] > 1 && !more.empty()) view.name += " " + more;
  }
}

// A process name must tell its trace from the others; the origin alone does so in the usual case of
// one prediction beside one measurement.
std::vector<View> make_views(std::span<const Trace* const> traces, Alignment alignment) {
  std::vector<View> views;
  Duration latest{};
  for (const Trace* trace : traces) {
    View view;
    view.trace = trace;
    view.name = label(trace->provenance.origin);
    view.windows = step_windows(*trace);
    view.median = median_step_index(*trace);
    const auto& median = view.windows[static_cast<std::size_t>(view.median)];
    latest = std::max(latest, median.start.time_since_epoch());
    views.push_back(std::move(view));
  }
  if (alignment == Alignment::MedianSteps) {
    for (View& view : views) {
      const auto& median = view.windows[static_cast<std::size_t>(view.median)];
      view.shift = latest - median.start.time_since_epoch();
    }
  }
  tell_apart(views, [](const View& view) { return view.trace->provenance.policy; });
  tell_apart(views, [](const View& view) {
    const std::string& machine = view.trace->provenance.machine;
    return machine.empty() ? machine : "on " + machine;
  });
  tell_apart(views, [&views](const View& view) {
    return "trace " + std::to_string(&view - views.data() + 1);
  });
  return views;
}

// What stands between the braces of "args".
class Args {
 public:
  Args& put(std::string_view key, std::string_view value) {
    begin(key);
    append_json_string(text_, value);
    return *this;
  }
  Args& put(std::string_view key, std::int64_t value) {
    begin(key);
    append_integer(text_, value);
    return *this;
  }
  Args& put(std::string_view key, Duration value) {
    begin(key);
    append_us(text_, value);
    return *this;
  }
  // JSON as it stands.
  Args& put_json(std::string_view key, std::string_view json) {
    begin(key);
    text_ += json;
    return *this;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void begin(std::string_view key) {
    if (!text_.empty()) text_ += ',';
    append_json_string(text_, key);
    text_ += ':';
  }
  std::string text_;
};

// The spans of one rank by command and step.
class SpansByCommand {
 public:
  explicit SpansByCommand(std::span<const Span> spans) {
    for (const Span& span : spans) spans_.push_back(&span);
    std::ranges::stable_sort(spans_, {}, key);
  }
  // The last one, where there are several.
  [[nodiscard]] const Span* find(CommandId command, std::int32_t step) const {
    const auto after = std::ranges::upper_bound(spans_, std::pair(command, step), {}, key);
    if (after == spans_.begin() || key(*(after - 1)) != std::pair(command, step)) return nullptr;
    return *(after - 1);
  }

 private:
  static std::pair<CommandId, std::int32_t> key(const Span* span) {
    return {span->command, span->step};
  }
  std::vector<const Span*> spans_;
};

// One rank of one trace, as a process.
class Process {
 public:
  Process(PerfettoEvents& events, const View& view, Rank rank, std::int64_t id)
      : events_(events),
        view_(view),
        trace_(*view.trace),
        rank_(rank),
        id_(id),
        path_(rank == trace_.ranks.front() ? view.path : nullptr),
        spans_(spans_of(trace_, rank)),
        by_command_(spans_) {}

  // Names first, then slices, then arrows: an arrow binds to slices already written.
  void write(ComputeWork compute) {
    write_names();
    write_steps(compute);
    write_phases();
    write_path();
    for (const Span& span : spans_) write_span(span);
    for (const Span& span : spans_) write_arrows(span);
    write_counters(compute);
  }

 private:
  [[nodiscard]] TrackId track(std::int64_t number) const { return {id_, number}; }
  [[nodiscard]] TrackId track(StreamId stream) const {
    return track(kFirstStream + (path_ == nullptr ? 0 : 1) + stream.value);
  }

  void write_names() {
    events_.name_process(track(kSteps), "rank " + std::to_string(rank_.value) + " " + view_.name);
    events_.name_track(track(kSteps), "steps");
    events_.name_track(track(kPhases), "phases");
    if (path_ != nullptr) events_.name_track(track(kPhases + 1), "critical path");
    for (const StreamInfo& stream : trace_.streams) {
      events_.name_track(track(stream.id), stream.name);
    }
  }

  void slice(TrackId track, std::string_view name, std::string_view category, Instant start,
             Instant end, const Args& args) {
    events_.slice(track, {name, category, view_.shown(start), end - start, args.text()});
  }

  [[nodiscard]] Args about() const {
    const Provenance& provenance = trace_.provenance;
    Args notes;
    for (const auto& [key, value] : provenance.notes) notes.put(key, value);
    Args args;
    args.put("origin", to_string(provenance.origin))
        .put("machine", provenance.machine)
        .put("policy", provenance.policy)
        .put("workload", provenance.workload)
        .put("backend", provenance.backend)
        .put("world_size", trace_.world_size)
        .put("ranks_shown", static_cast<std::int64_t>(trace_.ranks.size()));
    if (static_cast<std::int64_t>(trace_.ranks.size()) < trace_.world_size) {
      args.put("ranks_left_out", "they do what those of their kind do that are shown");
    }
    args.put_json("notes", "{" + notes.text() + "}");
    return args;
  }

  void write_steps(ComputeWork compute) {
    Instant end = view_.windows.back().end;
    for (const Span& span : spans_) end = std::max(end, span.end);
    const Provenance& provenance = trace_.provenance;
    const std::string what(label(provenance.origin));
    slice(track(kSteps), provenance.policy.empty() ? what : what + ": " + provenance.policy,
          "trace", view_.windows.front().start, end, about());
    const std::vector<Duration> exposed = exposed_by_step(trace_, rank_, view_.windows, compute);
    Instant before = view_.windows.front().start;
    for (std::size_t step = 0; step < view_.windows.size(); ++step) {
      const StepWindow& window = view_.windows[step];
      Args args;
      args.put("step", static_cast<std::int64_t>(step))
          .put("step_us", window.end - window.start)
          .put("exposed_us", exposed[step])
          .put("slowest_rank", window.slowest.value);
      if (static_cast<std::int32_t>(step) == view_.median) args.put("median", "yes");
      // Clocks of several hosts may let a step begin before the last one ends.
      const Instant start = std::max(window.start, before);
      before = std::max(window.end, start);
      const auto named = provenance.notes.find(kStepNameNote);
      slice(track(kSteps),
            named == provenance.notes.end() ? "step " + std::to_string(step) : named->second,
            "step", start, before, args);
    }
  }

  // Ops that follow each other on the compute stream in one phase of one step.
  void write_phases() {
    const Span* first = nullptr;
    const Span* last = nullptr;
    const auto put = [&] {
      if (first == nullptr) return;
      Args args;
      args.put("step", first->step);
      slice(track(kPhases), to_string(trace_.command(first->command).phase), "phase", first->start,
            last->end, args);
    };
    for (const Span& span : spans_of(trace_, rank_, kComputeStream)) {
      const CommandInfo& info = trace_.command(span.command);
      if (info.kind != SpanKind::Compute || info.phase == SpanPhase::Communication) continue;
      if (first == nullptr || first->step != span.step ||
          trace_.command(first->command).phase != info.phase) {
        put();
        first = &span;
      }
      last = &span;
    }
    put();
  }

  void write_path() {
    if (path_ == nullptr) return;
    const bool many = trace_.ranks.size() > 1;
    for (std::size_t step = 0; step < path_->steps.size(); ++step) {
      for (const PathLink& link : path_->steps[step]) {
        std::string name = name_of(link.command);
        if (name.empty() || link.kind == LinkKind::WakeUp) name = to_string(link.kind);
        if (link.kind == LinkKind::Host) name = "host, until it had issued " + name;
        if (link.kind == LinkKind::Launch) name = "launch of " + name;
        if (many) name = "rank " + std::to_string(link.rank.value) + ": " + name;
        Args args;
        args.put("kind", to_string(link.kind))
            .put("rank", link.rank.value)
            .put("command", link.command.value)
            .put("step", static_cast<std::int64_t>(step));
        slice(track(kPhases + 1), name, "critical path", link.start, link.end, args);
      }
    }
  }

  [[nodiscard]] std::string name_of(CommandId id) const {
    const auto found = std::ranges::lower_bound(trace_.commands, id, {}, &CommandInfo::id);
    return found != trace_.commands.end() && found->id == id ? found->name : std::string();
  }

  [[nodiscard]] std::string tensors_of(const CommandInfo& info) const {
    std::string text = "[";
    for (const CarriedTensor& tensor : info.tensors) {
      Args args;
      args.put("name", tensor.name).put("size_bytes", tensor.bytes.count());
      if (tensor.producer) args.put("produced_by", name_of(*tensor.producer));
      if (text.size() > 1) text += ',';
      text += "{" + args.text() + "}";
    }
    return text + "]";
  }

  void write_span(const Span& span) {
    const CommandInfo& info = trace_.command(span.command);
    Args args;
    args.put("command", info.id.value)
        .put("phase", to_string(info.phase))
        .put("step", std::int64_t{span.step});
    if (info.bucket) args.put("bucket", std::int64_t{info.bucket->value});
    if (info.bytes.count() != 0) args.put("size_bytes", info.bytes.count());
    if (span.transfer_start) args.put("transfer_start_us", view_.shown(*span.transfer_start));
    if (!info.tensors.empty()) args.put_json("tensors", tensors_of(info));
    for (const auto& [key, value] : info.remarks) args.put(key, value);
    slice(track(span.stream), info.name, to_string(info.kind), span.start, span.end, args);
  }

  // An arrow begins 1 ns before the end of its slice, which is still open then. It is left out where
  // clocks say that it would go back in time.
  void arrow(std::string_view name, std::string_view category, const Span& from, const Span& to,
             Instant at) {
    const Instant begin = std::min(from.end - Duration(1), at);
    if (begin < from.start || at < to.start || at >= to.end) return;
    events_.arrow(name, category, {track(from.stream), view_.shown(begin)},
                  {track(to.stream), view_.shown(at)});
  }

  // The run of a command that this span follows: of its own step, or of the one before.
  [[nodiscard]] const Span* run_before(CommandId command, std::int32_t step, Instant at) const {
    for (const std::int32_t of : {step, step - 1}) {
      const Span* span = by_command_.find(command, of);
      if (span != nullptr && span->start <= at) return span;
    }
    return nullptr;
  }

  void write_arrows(const Span& span) {
    const CommandInfo& info = trace_.command(span.command);
    if (info.kind == SpanKind::Collective) {
      write_ready(span, info);
      const Span* launch = info.after ? run_before(*info.after, span.step, span.start) : nullptr;
      if (launch != nullptr && launch->end <= span.start) {
        arrow("launch", "launch", *launch, span, span.start);
      }
    } else if (info.kind == SpanKind::Wait && span.stream == kComputeStream && info.after) {
      const Instant at = span.end - Duration(1);
      const Span* waited = run_before(*info.after, span.step, at);
      if (waited != nullptr) arrow("ends the stall", "wait", *waited, span, at);
    }
  }

  void write_ready(const Span& span, const CommandInfo& info) {
    std::vector<CommandId> producers;
    for (const CarriedTensor& tensor : info.tensors) {
      if (tensor.producer) producers.push_back(*tensor.producer);
    }
    std::ranges::sort(producers);
    producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
    for (const CommandId producer : producers) {
      const Span* run = run_before(producer, span.step, span.start);
      if (run == nullptr || run->end > span.start) continue;
      arrow("gradient ready", "ready", *run, span, span.start);
    }
  }

  void write_counters(ComputeWork compute) {
    for (const Counter& counter : counters_of(trace_, rank_, view_.windows, compute)) {
      for (const CounterPoint& point : counter.points) {
        events_.counter(track(kSteps), counter.name, counter.unit, view_.shown(point.at),
                        point.value);
      }
    }
    const auto clock = trace_.provenance.notes.find(kSmClockNote);
    if (clock == trace_.provenance.notes.end() || rank_ != Rank{0}) return;
    double mhz = 0;
    const std::string& text = clock->second;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), mhz);
    if (read.ec != std::errc{} || !(mhz > 0) || !std::isfinite(mhz)) return;
    events_.counter(track(kSteps), "SM clock", "MHz", view_.shown(view_.windows.back().end), mhz);
  }

  PerfettoEvents& events_;
  const View& view_;
  const Trace& trace_;
  Rank rank_;
  std::int64_t id_;
  const CriticalPath* path_;
  std::span<const Span> spans_;
  SpansByCommand by_command_;
};

std::string other_data(const std::vector<View>& views) {
  std::string text = "{\"schema\":\"dovetail.perfetto/2\",\"traces\":[";
  const char* separator = "\n";
  for (const View& view : views) {
    text += std::exchange(separator, ",\n");
    text += "{\"label\":";
    append_json_string(text, view.name);
    text += ",\"median_step\":";
    append_integer(text, view.median);
    text += ",\"shifted_us\":";
    append_us(text, view.shift);
    text += ",\"provenance\":";
    append_json(text, view.trace->provenance);
    text += '}';
  }
  return text + "]}";
}

}  // namespace

std::string perfetto_json(std::span<const Trace* const> traces, const PerfettoOptions& options) {
  std::size_t spans = 0;
  std::vector<Rank> ranks;
  for (const Trace* trace : traces) {
    spans += trace->spans.size();
    ranks.insert(ranks.end(), trace->ranks.begin(), trace->ranks.end());
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::vector<View> views = make_views(traces, options.alignment);
  DOVETAIL_CHECK(options.paths.empty() || options.paths.size() == views.size())
      << "a path for each";
  for (std::size_t i = 0; i < options.paths.size(); ++i) views[i].path = options.paths[i];
  PerfettoEvents events;
  events.reserve(4096 + 400 * spans);
  std::int64_t process = 0;
  for (const Rank rank : ranks) {
    for (const View& view : views) {
      if (std::ranges::find(view.trace->ranks, rank) == view.trace->ranks.end()) continue;
      Process(events, view, rank, ++process).write(options.compute);
    }
  }
  return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + events.take() +
         "\n],\"otherData\":" + other_data(views) + "}\n";
}

}  // namespace dovetail::traces
