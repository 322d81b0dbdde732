// Reads and writes traces as JSON, exactly. Spans are written by hand (json_text.h), for there may
// be a hundred thousand; the reader checks that steps, ranks, streams and commands exist and that
// the spans of a stream do not overlap.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/trace_json.h"

#include "base/file.h"
#include "traces/json_text.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace dovetail::traces {
namespace {

constexpr std::array<std::string_view, 7> kSpanFields = {
    "command", "rank", "stream", "step", "start_ns", "end_ns", "transfer_start_ns"};
constexpr std::int64_t kLargestId = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLargestTime = 999'999'999'999'999;

std::int64_t to_ns(Instant instant) { return instant.time_since_epoch().count(); }

void append_field(std::string& text, std::string_view key, std::string_view value) {
  append_json_string(text, key);
  text += ": ";
  append_json_string(text, value);
}

void append_integer_field(std::string& text, std::string_view key, std::int64_t value) {
  append_json_string(text, key);
  text += ": ";
  append_integer(text, value);
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

void append_tensors(std::string& text, const std::vector<CarriedTensor>& tensors) {
  text += ", \"tensors\": [";
  const char* separator = "";
  for (const CarriedTensor& tensor : tensors) {
    text += std::exchange(separator, ", ");
    text += '{';
    append_field(text, "name", tensor.name);
    text += ", ";
    append_integer_field(text, "size_bytes", tensor.bytes.count());
    if (tensor.producer) {
      text += ", ";
      append_integer_field(text, "producer", tensor.producer->value);
    }
    text += '}';
  }
  text += ']';
}

void append_command(std::string& text, const CommandInfo& command) {
  text += '{';
  append_integer_field(text, "id", command.id.value);
  text += ", ";
  append_field(text, "kind", to_string(command.kind));
  text += ", ";
  append_field(text, "phase", to_string(command.phase));
  text += ", ";
  append_field(text, "name", command.name);
  if (command.bucket) {
    text += ", ";
    append_integer_field(text, "bucket", command.bucket->value);
  }
  text += ", ";
  append_integer_field(text, "size_bytes", command.bytes.count());
  if (command.bus_bytes.count() != 0) {
    text += ", ";
    append_integer_field(text, "bus_bytes", command.bus_bytes.count());
  }
  if (command.after) {
    text += ", ";
    append_integer_field(text, "after", command.after->value);
  }
  if (!command.tensors.empty()) append_tensors(text, command.tensors);
  text += '}';
}

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

// A non-negative integer that fits an id.
template <class IdType>
IdType read_id(const JsonValue& value) {
  return IdType{static_cast<std::int32_t>(value.integer(0, kLargestId))};
}

// The enumerator among the first `count` whose word stands here.
template <class Enum, std::size_t count>
Enum read_enum(const JsonValue& value) {
  std::array<std::string_view, count> words;
  for (std::size_t i = 0; i < count; ++i) words[i] = to_string(static_cast<Enum>(i));
  return static_cast<Enum>(value.word(words));
}

// Notes may carry any key; all other keys are known.
Provenance read_provenance(JsonObject object) {
  Provenance provenance;
  provenance.origin = read_enum<Origin, 2>(object.at("origin"));
  provenance.machine = object.string("machine");
  provenance.policy = object.string("policy");
  provenance.workload = object.string("workload");
  provenance.backend = object.string("backend");
  JsonObject notes = object.object("notes");
  for (const std::string& key : notes.keys()) provenance.notes[key] = notes.string(key);
  object.done();
  return provenance;
}

// Rising, so that no rank stands twice and a lookup is a binary search. So with streams and
// commands.
std::vector<Rank> read_ranks(const JsonArray& array, std::int64_t world_size) {
  std::vector<Rank> ranks;
  for (const JsonValue value : array) {
    const Rank rank{static_cast<std::int32_t>(value.integer(0, world_size - 1))};
    if (!ranks.empty() && rank <= ranks.back()) value.fail("ranks must rise");
    ranks.push_back(rank);
  }
  return ranks;
}

std::vector<StreamInfo> read_streams(const JsonArray& array) {
  std::vector<StreamInfo> streams;
  for (const JsonValue value : array) {
    JsonObject object = value.object();
    StreamInfo stream{read_id<StreamId>(object.at("id")), object.string("name")};
    object.done();
    if (!streams.empty() && stream.id <= streams.back().id) value.fail("stream ids must rise");
    streams.push_back(std::move(stream));
  }
  return streams;
}

std::vector<CarriedTensor> read_tensors(const JsonArray& array) {
  std::vector<CarriedTensor> tensors;
  for (const JsonValue value : array) {
    JsonObject object = value.object();
    CarriedTensor tensor;
    tensor.name = object.string("name");
    tensor.bytes = Bytes(object.integer("size_bytes", 0));
    if (object.has("producer")) tensor.producer = read_id<CommandId>(object.at("producer"));
    object.done();
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<CommandInfo> read_commands(const JsonArray& array) {
  std::vector<CommandInfo> commands;
  for (const JsonValue value : array) {
    JsonObject object = value.object();
    CommandInfo command;
    command.id = read_id<CommandId>(object.at("id"));
    command.kind = read_enum<SpanKind, 6>(object.at("kind"));
    command.phase = read_enum<SpanPhase, 4>(object.at("phase"));
    command.name = object.string("name");
    if (object.has("bucket")) command.bucket = read_id<BucketId>(object.at("bucket"));
    command.bytes = Bytes(object.integer("size_bytes", 0));
    if (object.has("bus_bytes")) command.bus_bytes = Bytes(object.integer("bus_bytes", 0));
    if (object.has("after")) command.after = read_id<CommandId>(object.at("after"));
    if (object.has("tensors")) command.tensors = read_tensors(object.array("tensors"));
    object.done();
    if (!commands.empty() && command.id <= commands.back().id) value.fail("command ids must rise");
    commands.push_back(std::move(command));
  }
  return commands;
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
    const JsonArray fields = value.array();
    if (fields.size() != 6 && fields.size() != 7) {
      value.fail("expected 6 or 7 entries as in /span_fields, found " +
                 std::to_string(fields.size()));
    }
    Span span;
    span.command = read_id<CommandId>(fields[0]);
    span.rank = read_id<Rank>(fields[1]);
    span.stream = read_id<StreamId>(fields[2]);
    span.step = static_cast<std::int32_t>(fields[3].integer(0, trace_.steps - 1));
    span.start = read_time(fields[4]);
    span.end = read_time(fields[5]);
    if (fields.size() == 7) span.transfer_start = read_time(fields[6]);
    check_names(fields, span);
    check_times(value, span);
    return span;
  }

  static Instant read_time(const JsonValue& value) {
    return Instant(Duration(value.integer(0, kLargestTime)));
  }

  void check_names(const JsonArray& fields, const Span& span) {
    const auto command =
        std::ranges::lower_bound(trace_.commands, span.command, {}, &CommandInfo::id);
    if (command == trace_.commands.end() || command->id != span.command) {
      fields[0].fail("command " + number(span.command) + " is not listed in /commands");
    }
    const auto rank = std::ranges::lower_bound(trace_.ranks, span.rank);
    if (span.rank.value >= trace_.world_size) {
      fields[1].fail("rank " + number(span.rank) + " is outside the world of " +
                     std::to_string(trace_.world_size));
    }
    if (rank == trace_.ranks.end() || *rank != span.rank) {
      fields[1].fail("rank " + number(span.rank) + " is not listed in /ranks");
    }
    if (std::ranges::find(trace_.streams, span.stream, &StreamInfo::id) == trace_.streams.end()) {
      fields[2].fail("stream " + number(span.stream) + " is not listed in /streams");
    }
    if (span.transfer_start && command->kind != SpanKind::Collective) {
      fields[6].fail("only a collective transfers; command " + number(span.command) + " is a " +
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

// The list stands in the file for people; it must still say what the reader assumes.
void check_span_fields(const JsonArray& array) {
  if (array.size() != kSpanFields.size()) {
    array.value().fail("expected " + std::to_string(kSpanFields.size()) + " names, found " +
                       std::to_string(array.size()));
  }
  for (std::size_t i = 0; i < kSpanFields.size(); ++i) {
    static_cast<void>(array[i].word(std::array{kSpanFields[i]}));
  }
}

}  // namespace

void append_json(std::string& text, const Provenance& provenance) {
  text += '{';
  append_field(text, "origin", to_string(provenance.origin));
  const std::array<std::pair<std::string_view, std::string_view>, 4> fields = {
      {{"machine", provenance.machine},
       {"policy", provenance.policy},
       {"workload", provenance.workload},
       {"backend", provenance.backend}}};
  for (const auto& [key, value] : fields) {
    text += ", ";
    append_field(text, key, value);
  }
  text += ", \"notes\": {";
  const char* separator = "";
  for (const auto& [key, value] : provenance.notes) {
    text += std::exchange(separator, ", ");
    append_field(text, key, value);
  }
  text += "}}";
}

std::string to_json(const Trace& trace) {
  std::string text;
  text.reserve(1024 + 128 * trace.commands.size() + 64 * trace.spans.size());
  text += "{\"schema\": ";
  append_json_string(text, kTraceSchema);
  text += ", \"kind\": \"trace\",\n\"provenance\": ";
  append_json(text, trace.provenance);
  text += ",\n";
  append_integer_field(text, "world_size", trace.world_size);
  text += ", ";
  append_integer_field(text, "steps", trace.steps);
  text += ", \"ranks\": [";
  const char* separator = "";
  for (const Rank rank : trace.ranks) {
    text += std::exchange(separator, ",");
    append_integer(text, rank.value);
  }
  text += ']';
  append_lines(text, "streams", trace.streams, [&](const StreamInfo& stream) {
    text += '{';
    append_integer_field(text, "id", stream.id.value);
    text += ", ";
    append_field(text, "name", stream.name);
    text += '}';
  });
  append_lines(text, "commands", trace.commands,
               [&](const CommandInfo& command) { append_command(text, command); });
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
  JsonObject root = file.root();
  root.schema(kTraceSchema);
  static_cast<void>(root.word("kind", std::array<std::string_view, 1>{"trace"}));
  Trace trace;
  trace.provenance = read_provenance(root.object("provenance"));
  trace.world_size = root.integer("world_size", 1, kLargestId);
  // The bound keeps a wrong number from claiming memory; one step has at least one span.
  JsonArray spans = root.array("spans");
  trace.steps = static_cast<std::int32_t>(root.integer("steps", 1, kLargestId));
  if (static_cast<std::size_t>(trace.steps) > spans.size()) {
    root.at("steps").fail(std::to_string(trace.steps) + " steps, but only " +
                          std::to_string(spans.size()) + " spans");
  }
  trace.ranks = read_ranks(root.array("ranks"), trace.world_size);
  trace.streams = read_streams(root.array("streams"));
  trace.commands = read_commands(root.array("commands"));
  check_span_fields(root.array("span_fields"));
  trace.spans = SpanReader(trace).read(spans);
  root.done();
  return trace;
}

Trace load_trace(const std::string& path) { return read_trace(JsonFile(path)); }

}  // namespace dovetail::traces
