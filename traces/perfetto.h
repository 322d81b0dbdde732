// Traces as one Chrome JSON trace that opens in ui.perfetto.dev: predicted beside measured, or several plans.
//
// One process per rank and trace; rank r's processes stand next to each other:
//   rank 0 predicted    steps     |torch-ddp:cap=25MiB ..........|   what it is, with its notes in args
//                                 |step 0     |step 1            |
//                       phases    |forward|backward  |optimizer|
//                       compute   |op|op|op|op|  ...
//                       comm0             |all-reduce bucket 0|
//                       counters: in flight, link use, exposed communication
//   rank 0 measured     ...
// All steps are shown; traces are laid so that their median steps begin together. Complete events
// ("X"), microseconds with three decimals, so no nanosecond is lost; the events of one track never
// overlap partly, because the spans do not. "otherData" carries the provenance of each trace.
//
// A simulated trace whose critical path is given shows it as a track of its own, in the process of its first
// rank, below the phases: one slice per link, of all ranks that the chain passes, named as the span that it is.
//
// args of a span: command, phase, step, bucket, size_bytes, transfer_start_us, and of a bucket's
// collective its tensors: name, size_bytes, produced_by.
//
// Arrows: "gradient ready" from each op that wrote a gradient last to the collective of its bucket,
// "launch" from the enqueue to the collective, "ends the stall" from a collective to the stall of the
// compute stream that it ends.
//
// Counters of a rank, each the sum over what its streams do at that moment:
//   in flight [bytes]      of collectives that have begun on this rank and not ended
//   link use [GB/s]        bus bandwidth as nccl-tests defines it: bus_bytes / (end - transfer_start) of
//                          collectives whose last rank has come; while in flight is above 0 and this is 0,
//                          the rank waits for another. Left out where bus_bytes is not known
//   exposed communication  [us] of the step so far: moments with a collective in flight and no compute.
//                          It rises at the end of each such stretch and begins again with each step. At the
//                          end of a step it is StepReport::exposed, but for collectives that cross its border
//   SM clock [MHz]         of rank 0, where it was measured: one reading, at the end of the trace
//
// Format: "Trace Event Format", public document of the Chrome project; rules of the importer of
// Perfetto: partly overlapping events of a track are moved aside, an arrow's end must not come
// before its start, and both must lie inside their slices. tests/support/perfetto_rules.h checks them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "traces/critical_path.h"
#include "traces/perfetto_counters.h"
#include "traces/trace.h"

#include <span>
#include <string>

namespace dovetail::traces {

// MedianSteps: the median steps of all traces begin together. AsGiven: times stay as they are, of traces
// that count from one moment.
enum class Alignment { MedianSteps, AsGiven };

struct PerfettoOptions {
  Alignment alignment = Alignment::MedianSteps;
  ComputeWork compute = ComputeWork::FirstStream;
  std::span<const CriticalPath* const> paths = {};  // one of each trace; empty: none is known
};

// REQUIRES: no null pointer; every step of each trace has a span. Cost: about 1 us a span.
std::string perfetto_json(std::span<const Trace* const> traces,
                          const PerfettoOptions& options = {});

}  // namespace dovetail::traces
