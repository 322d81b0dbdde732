// Writes Chrome JSON trace events by hand into one string.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/perfetto.h"

#include "traces/json_text.h"
#include "traces/trace_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace dovetail::traces {
namespace {

// A trace and the part of it that is shown.
struct View {
  const Trace* trace = nullptr;
  std::string name;                  // "predicted"; with the policy where that is not unique
  std::optional<std::int32_t> step;  // absent: all
  Instant origin;                    // shown as 0
};

// A process name must tell its trace from the others; the origin alone does so in the usual case of
// one prediction beside one measurement.
std::vector<View> make_views(std::span<const Trace* const> traces, Steps steps) {
  std::vector<View> views;
  for (const Trace* trace : traces) {
    View view;
    view.trace = trace;
    view.name = label(trace->provenance.origin);
    const auto alike = std::ranges::count(traces, trace->provenance.origin, [](const Trace* other) {
      return other->provenance.origin;
    });
    if (alike > 1) view.name += " " + trace->provenance.policy;
    if (steps == Steps::Median) {
      const StepReport report = median_step(*trace);
      view.step = report.step;
      view.origin = report.start;
    }
    views.push_back(std::move(view));
  }
  return views;
}

// Appends one event after the other; ids of processes, threads and arrows are running numbers.
class Writer {
 public:
  explicit Writer(std::size_t spans) { text_.reserve(4096 + 256 * spans); }

  void begin() { text_ += "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["; }

  // All processes of one rank: one per trace.
  void write_rank(const std::vector<View>& views, Rank rank) {
    for (const View& view : views) {
      if (std::ranges::find(view.trace->ranks, rank) != view.trace->ranks.end()) {
        ++process_;
        write_process(view, rank);
      }
    }
  }

  std::string finish(const std::vector<View>& views) {
    text_ += "\n],\"otherData\":{\"schema\":\"dovetail.perfetto/1\",\"traces\":[";
    const char* separator = "\n";
    for (const View& view : views) {
      text_ += std::exchange(separator, ",\n");
      text_ += "{\"label\":";
      append_json_string(text_, view.name);
      text_ += ",\"shown_step\":";
      if (view.step) {
        append_integer(text_, *view.step);
      } else {
        text_ += "\"all\"";
      }
      text_ += ",\"provenance\":";
      append_json(text_, view.trace->provenance);
      text_ += '}';
    }
    text_ += "]}}\n";
    return std::move(text_);
  }

 private:
  // Thread ids are unique over all processes and differ from every process id: a viewer takes equal
  // ids for a main thread and moves it to the top.
  [[nodiscard]] std::int64_t thread(StreamId stream) const {
    return process_ * 1000 + 1 + stream.value;
  }

  // Opens an event with the fields that all kinds share; the caller closes it.
  void begin_event(char phase, std::int64_t thread) {
    text_ += first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
    first_ = false;
    text_ += phase;
    text_ += "\",\"pid\":";
    append_integer(text_, process_);
    text_ += ",\"tid\":";
    append_integer(text_, thread);
  }

  void write_name(std::string_view what, std::int64_t thread, std::string_view name) {
    begin_event('M', thread);
    text_ += ",\"name\":";
    append_json_string(text_, what);
    text_ += ",\"args\":{\"name\":";
    append_json_string(text_, name);
    text_ += "}}";
  }

  // Without it a viewer sorts processes and tracks by name.
  void write_sort_index(std::string_view what, std::int64_t thread, std::int64_t index) {
    begin_event('M', thread);
    text_ += ",\"name\":";
    append_json_string(text_, what);
    text_ += ",\"args\":{\"sort_index\":";
    append_integer(text_, index);
    text_ += "}}";
  }

  // Names first, then spans by stream, then arrows: an arrow binds to slices already written.
  void write_process(const View& view, Rank rank) {
    const std::int64_t first_thread = thread(StreamId{0});
    write_name("process_name", first_thread,
               "rank " + std::to_string(rank.value) + " " + view.name);
    write_sort_index("process_sort_index", first_thread, process_);
    for (const StreamInfo& stream : view.trace->streams) {
      write_name("thread_name", thread(stream.id), stream.name);
      write_sort_index("thread_sort_index", thread(stream.id), stream.id.value);
    }
    // A collective's last span per step and bucket: where the arrows begin.
    std::map<std::pair<std::int32_t, BucketId>, const Span*> collectives;
    std::vector<const Span*> stalls;
    for (const Span& span : spans_of(*view.trace, rank)) {
      if (view.step && span.step != *view.step) continue;
      const CommandInfo& info = view.trace->command(span.command);
      write_span(view, span, info);
      if (!info.bucket) continue;
      if (info.kind == SpanKind::Wait && span.stream == kComputeStream) stalls.push_back(&span);
      if (info.kind != SpanKind::Collective) continue;
      const Span*& last = collectives[{span.step, *info.bucket}];
      if (last == nullptr || span.end > last->end) last = &span;
    }
    for (const Span* stall : stalls) {
      const auto from =
          collectives.find({stall->step, *view.trace->command(stall->command).bucket});
      if (from != collectives.end()) write_arrow(view, *from->second, *stall);
    }
  }

  void write_time(std::string_view key, const View& view, Instant at) {
    text_ += ",\"";
    text_ += key;
    text_ += "\":";
    append_us(text_, at - view.origin);
  }

  void write_span(const View& view, const Span& span, const CommandInfo& info) {
    // Only the wait of a communication stream can begin before its step; it is cut there.
    const Instant start = view.step ? std::max(span.start, view.origin) : span.start;
    begin_event('X', thread(span.stream));
    write_time("ts", view, start);
    text_ += ",\"dur\":";
    append_us(text_, std::max(span.end, start) - start);
    text_ += ",\"name\":";
    append_json_string(text_, info.name);
    text_ += ",\"cat\":\"";
    text_ += to_string(info.kind);
    text_ += "\",\"args\":{\"command\":";
    append_integer(text_, info.id.value);
    text_ += ",\"phase\":\"";
    text_ += to_string(info.phase);
    text_ += "\",\"step\":";
    append_integer(text_, span.step);
    if (info.bucket) {
      text_ += ",\"bucket\":";
      append_integer(text_, info.bucket->value);
    }
    if (info.bytes.count() != 0) {
      text_ += ",\"size_bytes\":";
      append_integer(text_, info.bytes.count());
    }
    if (span.transfer_start) write_time("transfer_start_us", view, *span.transfer_start);
    text_ += "}}";
  }

  // Both ends lie 1 ns before the end of their slice, so that the slice is still open there.
  void write_arrow(const View& view, const Span& collective, const Span& stall) {
    const Instant to = stall.end - Duration(1);
    const Instant from = std::min(collective.end - Duration(1), to);
    if (to < stall.start || from < collective.start) return;
    ++arrow_;
    write_arrow_end('s', view, collective.stream, from);
    write_arrow_end('f', view, stall.stream, to);
  }

  void write_arrow_end(char phase, const View& view, StreamId stream, Instant at) {
    begin_event(phase, thread(stream));
    write_time("ts", view, at);
    text_ += ",\"name\":\"ends the stall\",\"cat\":\"wait\",\"id\":";
    append_integer(text_, arrow_);
    text_ += phase == 'f' ? ",\"bp\":\"e\"}" : "}";
  }

  std::string text_;
  std::int64_t process_ = 0;
  std::int64_t arrow_ = 0;
  bool first_ = true;
};

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
  const std::vector<View> views = make_views(traces, options.steps);
  Writer writer(spans);
  writer.begin();
  for (const Rank rank : ranks) writer.write_rank(views, rank);
  return writer.finish(views);
}

}  // namespace dovetail::traces
