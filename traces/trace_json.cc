// Reads and writes traces as JSON, exactly. Spans are written by hand (json_text.h), for there may
// be a hundred thousand; the reader checks that steps, ranks, streams and commands exist and that
// the spans of a stream do not overlap.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/trace_json.h"

#include "base/fields.h"
#include "base/file.h"
#include "traces/json_text.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

namespace dovetail::traces {
namespace {

constexpr std::array<std::string_view, 7> kSpanFields = {
    "command", "rank", "stream", "step", "start_ns", "end_ns", "transfer_start_ns"};
constexpr std::int64_t kLargestId = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLargestTime = 999'999'999'999'999;
constexpr auto kId = as_integer(0, kLargestId);
constexpr auto kSize = as_integer(0);

std::int64_t to_ns(Instant instant) { return instant.time_since_epoch().count(); }

// Rising ids, so that none stands twice and a lookup is a binary search.
template <class T>
constexpr auto must_rise(std::string_view message) {
  return [message](const JsonValue& item, const std::vector<T>& before, const T& one, auto&) {
    if (!before.empty() && one.id <= before.back().id) item.fail(std::string(message));
  };
}

// Of the ranks of a job whose size stands before them.
struct RankValue {
  void read(const JsonValue& value, Rank& rank, const Trace& trace) const {
    as_integer(0, trace.world_size - 1).read(value, rank, trace);
  }
  ordered_json write(Rank rank, const auto& /*context*/) const { return rank.value; }
  template <class T>
  [[nodiscard]] ordered_json schema() const {
    return as_integer(0).schema<T>();
  }
};

constexpr auto kProvenance = as_object(fields<Provenance>(
    required("origin", &Provenance::origin, as_word(), "who says so"),
    required("machine", &Provenance::machine, as_text()),
    required("policy", &Provenance::policy, as_text()),
    required("workload", &Provenance::workload, as_text()),
    required("backend", &Provenance::backend, as_text(), "sim, cpu/ring, cpu/gloo, cuda, fake"),
    required("notes", &Provenance::notes, as_keyed(as_text()))));

constexpr auto kStream = as_object(fields<StreamInfo>(
    required("id", &StreamInfo::id, kId), required("name", &StreamInfo::name, as_text())));

constexpr auto kTensor =
    as_object(fields<CarriedTensor>(required("name", &CarriedTensor::name, as_text()),
                                    required("size_bytes", &CarriedTensor::bytes, kSize),
                                    optional("producer", &CarriedTensor::producer, kId,
                                             "id of the command at whose end it is ready")));

constexpr auto kCommand = as_object(fields<CommandInfo>(
    required("id", &CommandInfo::id, kId),
    required("kind", &CommandInfo::kind, as_word(), "what it is"),
    required("phase", &CommandInfo::phase, as_word(), "part of the step"),
    required("name", &CommandInfo::name, as_text()), optional("bucket", &CommandInfo::bucket, kId),
    required("size_bytes", &CommandInfo::bytes, kSize, "moved; 0 for compute"),
    optional("bus_bytes", &CommandInfo::bus_bytes, kSize,
             "what each rank's link carries of a collective: bus bandwidth, as nccl-tests defines "
             "it, times time; absent where unknown"),
    optional("after", &CommandInfo::after, kId,
             "id of the command of another stream that a wait waits for, or that launches a "
             "collective"),
    optional("tensors", &CommandInfo::tensors, as_list(kTensor),
             "what travels in a bucket's collective, in the bucket's order")));

// The hot loop of the writer: integers and commas, nothing else.
void append_span(std::string& text, const Span& span) {
  text += '[';
  append_integer(text, span.command.value);
  const std::array<std::int64_t, 5> rest = {span.rank.value, span.stream.value, span.step,
                                            to_ns(span.start), to_ns(span.end)};
  for (const std::int64_t value : rest) {
    text += ',';
    append_integer(text, value);
  }
  if (span.transfer_start) {
    text += ',';
    append_integer(text, to_ns(*span.transfer_start));
  }
  text += ']';
}

// On one line.
void append_value(std::string& text, const ordered_json& value) {
  if (value.is_string()) {
    append_json_string(text, value.get_ref<const std::string&>());
  } else if (value.is_number_integer()) {
    append_integer(text, value.get<std::int64_t>());
  } else {
    const bool is_object = value.is_object();
    text += is_object ? '{' : '[';
    const char* separator = "";
    for (const auto& [key, member] : value.items()) {
      text += std::exchange(separator, ", ");
      if (is_object) {
        append_json_string(text, key);
        text += ": ";
      }
      append_value(text, member);
    }
    text += is_object ? '}' : ']';
  }
}

// Writes the items between brackets, each on a line of its own.
template <class Items, class Append>
void append_lines(std::string& text, std::string_view key, const Items& items, Append append) {
  text += ",\n";
  append_json_string(text, key);
  text += ": [";
  const char* separator = "\n";
  for (const auto& item : items) {
    text += std::exchange(separator, ",\n");
    append(item);
  }
  text += ']';
}

// Reads the spans of a trace whose other parts are already there.
class SpanReader {
 public:
  explicit SpanReader(const Trace& trace)
      : trace_(trace),
        rank_has_spans_(trace.ranks.size()),
        step_has_spans_(static_cast<std::size_t>(trace.steps)) {}

  std::vector<Span> read(const JsonArray& array) {
    std::vector<Span> spans;
    spans.reserve(array.size());
    for (const JsonValue value : array) {
      const Span span = read_span(value);
      if (!spans.empty()) check_order(value, spans.back(), span);
      spans.push_back(span);
    }
    for (std::size_t i = 0; i < rank_has_spans_.size(); ++i) {
      if (!rank_has_spans_[i]) array.value().fail("rank " + number(trace_.ranks[i]) + " has none");
    }
    for (std::size_t i = 0; i < step_has_spans_.size(); ++i) {
      if (!step_has_spans_[i]) array.value().fail("step " + std::to_string(i) + " has none");
    }
    return spans;
  }

 private:
  template <class IdType>
  static std::string number(IdType id) {
    return std::to_string(id.value);
  }

  // Names before times: a message about an unknown command helps more than one about its end.
  Span read_span(const JsonValue& value) {
    const JsonArray entries = value.array();
    if (entries.size() != 6 && entries.size() != 7) {
      value.fail("expected 6 or 7 entries as in /span_fields, found " +
                 std::to_string(entries.size()));
    }
    Span span;
    kId.read(entries[0], span.command, trace_);
    kId.read(entries[1], span.rank, trace_);
    kId.read(entries[2], span.stream, trace_);
    span.step = static_cast<std::int32_t>(entries[3].integer(0, trace_.steps - 1));
    span.start = read_time(entries[4]);
    span.end = read_time(entries[5]);
    if (entries.size() == 7) span.transfer_start = read_time(entries[6]);
    check_names(entries, span);
    check_times(value, span);
    return span;
  }

  static Instant read_time(const JsonValue& value) {
    return Instant(Duration(value.integer(0, kLargestTime)));
  }

  void check_names(const JsonArray& entries, const Span& span) {
    const auto command =
        std::ranges::lower_bound(trace_.commands, span.command, {}, &CommandInfo::id);
    if (command == trace_.commands.end() || command->id != span.command) {
      entries[0].fail("command " + number(span.command) + " is not listed in /commands");
    }
    const auto rank = std::ranges::lower_bound(trace_.ranks, span.rank);
    if (span.rank.value >= trace_.world_size) {
      entries[1].fail("rank " + number(span.rank) + " is outside the world of " +
                      std::to_string(trace_.world_size));
    }
    if (rank == trace_.ranks.end() || *rank != span.rank) {
      entries[1].fail("rank " + number(span.rank) + " is not listed in /ranks");
    }
    if (std::ranges::find(trace_.streams, span.stream, &StreamInfo::id) == trace_.streams.end()) {
      entries[2].fail("stream " + number(span.stream) + " is not listed in /streams");
    }
    if (span.transfer_start && command->kind != SpanKind::Collective) {
      entries[6].fail("only a collective transfers; command " + number(span.command) + " is a " +
                      std::string(to_string(command->kind)));
    }
    rank_has_spans_[static_cast<std::size_t>(rank - trace_.ranks.begin())] = true;
    step_has_spans_[static_cast<std::size_t>(span.step)] = true;
  }

  static void check_times(const JsonValue& value, const Span& span) {
    if (span.end < span.start) {
      value.fail("ends at " + std::to_string(to_ns(span.end)) + " ns, before its start at " +
                 std::to_string(to_ns(span.start)) + " ns");
    }
    if (span.transfer_start &&
        (*span.transfer_start < span.start || *span.transfer_start > span.end)) {
      value.fail("transfer starts at " + std::to_string(to_ns(*span.transfer_start)) +
                 " ns, outside the span");
    }
  }

  // Neighbours are enough: spans are sorted, so an overlap shows between two of them.
  static void check_order(const JsonValue& value, const Span& before, const Span& span) {
    const auto key = [](const Span& s) { return std::tuple(s.rank, s.stream, s.start); };
    if (key(span) < key(before)) {
      value.fail("out of order; spans are sorted by rank, stream and start");
    }
    if (span.rank == before.rank && span.stream == before.stream && span.start < before.end) {
      value.fail("starts at " + std::to_string(to_ns(span.start)) + " ns on rank " +
                 number(span.rank) + ", stream " + number(span.stream) +
                 ", where the span before it ends at " + std::to_string(to_ns(before.end)) + " ns");
    }
  }

  const Trace& trace_;
  std::vector<bool> rank_has_spans_;
  std::vector<bool> step_has_spans_;
};

// "span_fields", a list for people, must say what the reader assumes of "spans".
struct SpansPart {
  constexpr void keys(const auto& visitor) const {
    visitor("span_fields");
    visitor("spans");
  }
  void read(JsonObject& object, Trace& trace, const auto& /*context*/) const {
    const JsonArray names = object.array("span_fields");
    if (names.size() != kSpanFields.size()) {
      names.value().fail("expected " + std::to_string(kSpanFields.size()) + " names, found " +
                         std::to_string(names.size()));
    }
    for (std::size_t i = 0; i < kSpanFields.size(); ++i) {
      static_cast<void>(names[i].word(std::array{kSpanFields[i]}));
    }
    trace.spans = SpanReader(trace).read(object.array("spans"));
  }
  template <class Owner>
  void schema(ObjectSchema& whole) const {
    whole.add("span_fields", {{"const", kSpanFields}}, "");
    whole.add("spans",
              {{"type", "array"},
               {"items",
                {{"type", "array"},
                 {"items", as_integer(0, kLargestTime).schema<std::int64_t>()},
                 {"minItems", kSpanFields.size() - 1},
                 {"maxItems", kSpanFields.size()}}}},
              "entries as span_fields names them; the last only of collectives, once all ranks "
              "have arrived");
    whole.required.push_back("span_fields");
    whole.required.push_back("spans");
  }
};

constexpr auto kTrace = as_object(fields<Trace>(
    document(kTraceSchema, "trace"), required("provenance", &Trace::provenance, kProvenance),
    required("world_size", &Trace::world_size, as_integer(1, kLargestId),
             "ranks of the job; equal ranks of a simulation share one"),
    required("steps", &Trace::steps, as_integer(1, kLargestId)),
    // The bound keeps a wrong number from claiming memory; one step has at least one span.
    check([](JsonObject& object, const Trace& trace, auto&) {
      const std::size_t spans = object.array("spans").size();
      if (static_cast<std::size_t>(trace.steps) <= spans) return;
      object.at("steps").fail(std::to_string(trace.steps) + " steps, but only " +
                              std::to_string(spans) + " spans");
    }),
    required("ranks", &Trace::ranks,
             as_list(RankValue{},
                     [](const JsonValue& item, const std::vector<Rank>& before, Rank rank, auto&) {
                       if (!before.empty() && rank <= before.back()) item.fail("ranks must rise");
                     }),
             "those that have spans, rising"),
    required("streams", &Trace::streams,
             as_list(kStream, must_rise<StreamInfo>("stream ids must rise"))),
    required("commands", &Trace::commands,
             as_list(kCommand, must_rise<CommandInfo>("command ids must rise"))),
    SpansPart{}));

}  // namespace

void append_json(std::string& text, const Provenance& provenance) {
  append_value(text, as_json(kProvenance, provenance));
}

std::string to_json(const Trace& trace) {
  std::string text;
  text.reserve(1024 + 128 * trace.commands.size() + 64 * trace.spans.size());
  text += "{\"schema\": ";
  append_json_string(text, kTraceSchema);
  text += ", \"kind\": \"trace\",\n\"provenance\": ";
  append_json(text, trace.provenance);
  text += ",\n";
  text += "\"world_size\": ";
  append_integer(text, trace.world_size);
  text += ", \"steps\": ";
  append_integer(text, trace.steps);
  text += ", \"ranks\": [";
  const char* separator = "";
  for (const Rank rank : trace.ranks) {
    text += std::exchange(separator, ",");
    append_integer(text, rank.value);
  }
  text += ']';
  append_lines(text, "streams", trace.streams,
               [&](const StreamInfo& stream) { append_value(text, as_json(kStream, stream)); });
  append_lines(text, "commands", trace.commands,
               [&](const CommandInfo& command) { append_value(text, as_json(kCommand, command)); });
  text += ",\n\"span_fields\": [";
  separator = "";
  for (const std::string_view field : kSpanFields) {
    text += std::exchange(separator, ", ");
    append_json_string(text, field);
  }
  text += ']';
  append_lines(text, "spans", trace.spans, [&](const Span& span) { append_span(text, span); });
  text += "}\n";
  return text;
}

Trace read_trace(const JsonFile& file) {
  Trace trace;
  kTrace.read(file.root(), trace, trace);
  return trace;
}

ordered_json trace_schema() {
  return schema_of<Trace>(
      kTrace, "dovetail.trace/1: what happened",
      "One span per command, rank and step, in nanoseconds from the start of the first step. "
      "Written by predict, plan --trace and run --trace; read by compare.");
}

Trace load_trace(const std::string& path) { return read_trace(JsonFile(path)); }

}  // namespace dovetail::traces
