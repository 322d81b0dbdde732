// Traces as JSON files, exact in both directions.
//
//   {"schema": "dovetail.trace/1", "kind": "trace",
//    "provenance": {"origin": "measured", "machine": "...", "policy": "...", "workload": "...",
//                   "backend": "cpu/ring", "notes": {"date": "..."}},
//    "world_size": 2, "steps": 1, "ranks": [0, 1],
//    "streams": [{"id": 0, "name": "compute"}],
//    "commands": [{"id": 4, "kind": "collective", "phase": "communication",
//                  "name": "all-reduce bucket 0", "bucket": 0, "size_bytes": 4096,
//                  "bus_bytes": 4096, "after": 3, "tensors": [{"name": "fc1.weight.grad",
//                                                              "size_bytes": 4096, "producer": 2}]}],
//    "span_fields": ["command", "rank", "stream", "step", "start_ns", "end_ns",
//                    "transfer_start_ns"],
//    "spans": [[4, 0, 1, 0, 1000, 9000, 1500]]}
//
// A span is a short array, since a trace can hold 100 000 of them; `span_fields` names its entries.
// The last entry and the keys "bucket", "bus_bytes", "after", "tensors" and "producer" are absent where
// unknown. A command that "after" or "producer" names and the file does not list is passed over. A span a line, so files diff well.
// Times count from the moment step 0 began, so they are not negative, and stay below 10^15 ns
// (11 days), which every JSON reader holds exactly.
//
// The reader refuses all that trace.h rules out: unknown commands, streams and ranks, ranks outside
// the world, ends before starts, spans out of order or overlapping on one rank and stream, a
// transfer outside its span or on anything but a collective, listed ranks and steps without spans.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json_reader.h"
#include "traces/trace.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace dovetail::traces {

inline constexpr std::string_view kTraceSchema = "dovetail.trace/1";

std::string to_json(const Trace& trace);

// Throws InputError "FILE: /spans/3/0: command 99 is not listed in /commands".
Trace read_trace(const JsonFile& file);

Trace load_trace(const std::string& path);
nlohmann::ordered_json trace_schema();  // the JSON Schema of such a file

// The provenance as one JSON object, as it stands in every file that shows a trace.
void append_json(std::string& text, const Provenance& provenance);

}  // namespace dovetail::traces
