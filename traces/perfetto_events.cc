// Appends the events of Chrome's trace format to a text, one function per kind of event.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/perfetto_events.h"

#include <string>

#include "traces/json_text.h"

namespace dovetail::traces {

void PerfettoEvents::begin(char phase, TrackId track) {
  text_ += text_.empty() ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
  text_ += phase;
  text_ += "\",\"pid\":";
  append_integer(text_, track.process);
  text_ += ",\"tid\":";
  append_integer(text_, 1000 * track.process + 1 + track.number);
}

// `value`: as JSON has it.
void PerfettoEvents::metadata(TrackId track, std::string_view what, std::string_view key,
                              std::string_view value) {
  begin('M', track);
  text_ += ",\"name\":";
  append_json_string(text_, what);
  text_ += ",\"args\":{\"";
  text_ += key;
  text_ += "\":";
  text_ += value;
  text_ += "}}";
}

void PerfettoEvents::name_metadata(TrackId track, std::string_view what, std::string_view name) {
  std::string value;
  append_json_string(value, name);
  metadata(track, what, "name", value);
}

// Without it a viewer sorts processes and tracks by name.
void PerfettoEvents::sort_index(TrackId track, std::string_view what, std::int64_t index) {
  metadata(track, what, "sort_index", std::to_string(index));
}

void PerfettoEvents::name_process(TrackId any, std::string_view name) {
  name_metadata(any, "process_name", name);
  sort_index(any, "process_sort_index", any.process);
}

void PerfettoEvents::name_track(TrackId track, std::string_view name) {
  name_metadata(track, "thread_name", name);
  sort_index(track, "thread_sort_index", track.number);
}

void PerfettoEvents::slice(TrackId track, const Slice& slice) {
  begin('X', track);
  text_ += ",\"ts\":";
  append_us(text_, slice.start);
  text_ += ",\"dur\":";
  append_us(text_, slice.length);
  text_ += ",\"name\":";
  append_json_string(text_, slice.name);
  text_ += ",\"cat\":";
  append_json_string(text_, slice.category);
  text_ += ",\"args\":{";
  text_ += slice.args;
  text_ += "}}";
}

void PerfettoEvents::arrow(std::string_view name, std::string_view category, const End& from,
                           const End& to) {
  ++arrows_;
  for (const char phase : {'s', 'f'}) {
    const End& end = phase == 's' ? from : to;
    begin(phase, end.track);
    text_ += ",\"ts\":";
    append_us(text_, end.at);
    text_ += ",\"name\":";
    append_json_string(text_, name);
    text_ += ",\"cat\":";
    append_json_string(text_, category);
    text_ += ",\"id\":";
    append_integer(text_, arrows_);
    text_ += phase == 'f' ? ",\"bp\":\"e\"}" : "}";
  }
}

void PerfettoEvents::counter(TrackId any, std::string_view name, std::string_view unit, Duration at,
                             double value) {
  begin('C', any);
  text_ += ",\"ts\":";
  append_us(text_, at);
  text_ += ",\"name\":";
  append_json_string(text_, name);
  text_ += ",\"args\":{";
  append_json_string(text_, unit);
  text_ += ':';
  append_decimal(text_, value);
  text_ += "}}";
}

}  // namespace dovetail::traces
