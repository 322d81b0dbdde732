// Traces as one Chrome JSON trace that opens in ui.perfetto.dev, predicted beside measured.
//
// One process per rank and trace, one track per stream:
//   rank 0 predicted    compute  |forward|backward ...|optimizer|
//                       comm0            |all-reduce bucket 0|
//   rank 0 measured     compute  ...
// Rank r's processes stand next to each other. Complete events ("X"), microseconds with three
// decimals, so no nanosecond is lost; the events of one track never overlap, because the spans do
// not. `args` carries the command id, phase, step, bucket, size_bytes, transfer_start_us. An arrow
// leads from a collective to the stall of the compute stream that it ends. "otherData" carries the
// provenance of each trace, labelled simulated or measured.
//
// Format: "Trace Event Format", public document of the Chrome project; rules of the importer of
// Perfetto: partly overlapping events of a track are moved aside, an arrow's end must not come
// before its start, and both must lie inside their slices.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "traces/metrics.h"
#include "traces/trace.h"

#include <span>
#include <string>

namespace dovetail::traces {

struct PerfettoOptions {
  Steps steps = Steps::Median;  // Median: of each trace its own, moved to start at 0
};

// REQUIRES: no null pointer; every step of each trace has a span. Cost: under 0.5 us a span.
std::string perfetto_json(std::span<const Trace* const> traces,
                          const PerfettoOptions& options = {});

}  // namespace dovetail::traces
