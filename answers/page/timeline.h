// One step of a Trace, laid out to be drawn: what each stream did when, which gradients travel in which
// bucket, when each of them was ready, and why a stream stood still.
//
//   Timeline line = timeline(trace, {.title = "exact", .program = &lowered});
//   line.spans[3].why          "waits for bucket 4: 1.2 ms behind bucket 3, 3.4 ms its own transfer"
//   line.stalls.by[...]        the same, summed over the stalls of the compute stream
//
// Of a pipeline the part of a stall that is bubble (answers/step_parts.h) is a span of its own, and what stages send
// each other are arrows from rank to rank, in place of rows.
//
// The step is the median one (traces/metrics.h), and times count from its start. Rows are those of the
// slowest rank first, then of the others, at most kMostRanks. In a step of more than kMostSpans spans those shorter than
// a thousandth of it are drawn as one with their neighbours: "12 too short to be drawn: A to B".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "answers/page/causes.h"
#include "base/ids.h"
#include "base/units.h"
#include "schedule/scheduled_program.h"
#include "traces/critical_path.h"
#include "traces/intervals.h"
#include "traces/metrics.h"
#include "traces/rank_memory.h"
#include "traces/trace.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::report {

inline constexpr std::size_t kMostRanks = 8;
inline constexpr std::size_t kMostSpans = 12'000;

// One stream of one rank.
struct TimelineRow {
  Rank rank;
  StreamId stream;
  std::string name;  // "compute", "comm0"
};

// What a row did for a while. A gap is drawn too: `what` is "gap" then, and `why` says what was missing.
struct TimelineSpan {
  std::size_t row = 0;
  std::string
      what;  // an activity of traces/metrics.h; "collective", "wait", "bubble", "kernel", "host call", "gap"
  std::string name;
  Duration start{}, end{};
  std::optional<Duration> transfer_start =
      std::nullopt;  // of a collective: when the last rank had come
  std::optional<BucketId> bucket = std::nullopt;
  Bytes bytes = Bytes(0);  // moved
  std::string why = {};    // of a stall, wait or gap
};

// What one stage sends another, between the compute streams of their ranks: from when both have come to its end.
struct TimelineArrow {
  std::size_t from_row = 0, to_row = 0;
  std::string name;
  Bytes bytes;
  Duration start{}, end{};
};

// A stretch of the step's critical path (traces/critical_path.h), on the row on which it runs.
struct TimelinePath {
  std::optional<std::size_t> row;  // absent where that rank is not shown
  std::string kind;                // "compute", "transfer", "host"
  std::string what;                // "rank 0 backward, 9 ops, to layer5.backward"
  Duration start{}, end{};
};

struct TimelineGradient {
  std::string name;
  Bytes bytes;
  std::optional<Duration> ready = std::nullopt;  // on the slowest rank; absent: not in this step
};
struct TimelineBucket {
  BucketId id;
  Bytes bytes;  // with padding
  std::vector<TimelineGradient> gradients;
};

struct Timeline {
  std::string title;
  traces::Provenance provenance;
  std::int64_t world_size = 1;
  std::int32_t steps = 1;  // of the trace
  std::int32_t step = 0;   // that is shown
  traces::Spread spread;   // of the step times
  traces::StepReport report;
  bool has_breakdown = true;  // report.breakdown and stalls mean something
  ByCause stalls;             // of the slowest rank's compute stream
  std::vector<TimelineRow> rows;
  std::vector<TimelineSpan> spans;
  std::vector<TimelineArrow> arrows;
  std::vector<traces::RankMemory> memory;  // of ranks shown; empty where it is not known
  std::optional<Bytes> capacity =
      std::nullopt;  // of a device; absent: not known, or `memory` is not all
  std::optional<Duration> bubble = std::nullopt;  // of the slowest rank; absent without a pipeline
  std::vector<TimelineBucket> buckets;            // empty without a program
  std::vector<TimelinePath> path;                 // by time; empty where it is not known
  std::size_t ranks_left_out = 0;
};

// Whether stream 0 is the compute stream, as in traces of our own machines. Of a profiler's trace nobody
// knows: its Timeline has no breakdown.
enum class ComputeStream { First, Unknown };

struct TimelineOptions {
  std::string title;
  const schedule::ScheduledProgram* program = nullptr;  // whose commands these are; null: not known
  ComputeStream compute = ComputeStream::First;
  const traces::CriticalPath* path = nullptr;  // of the trace; null: not known
  // Of the median step, by rank; empty: no pipeline, or not known.
  std::map<Rank, std::vector<traces::Interval>> bubbles = {};
  std::vector<traces::RankMemory> memory = {};  // of the median step; empty: not known
  // Of a device, where `memory` is all that a rank holds; absent: not known.
  std::optional<Bytes> capacity = std::nullopt;
};

// REQUIRES: every step of the trace has a span; the commands of the trace are those of the program.
Timeline timeline(const traces::Trace& trace, const TimelineOptions& options);

}  // namespace dovetail::report
