// Numbers derived from one Trace: step time, what of the communication is exposed, where the
// compute stream stood still. A pure function of the Trace.
//
// Definitions, for one step k:
//   end of a step  the latest end over all ranks of its spans, except kernels and waits on
//                  communication streams: such a stream may stand at its next wait long before the
//                  step begins
//   step window    of simulated steps, which follow each other without a pause: from the end of step
//                  k - 1 to the end of step k, so that the windows neither overlap (a pipeline's last
//                  stage stalls for step k while others still work on step k - 1) nor leave gaps out.
//                  Of measured steps, each of which begins behind a barrier of all ranks, and of a
//                  simulated step 0: from its earliest start
//   step time      length of the window
//   slowest rank   the rank with the latest end; of equals the lowest. All that follows is its own
//   compute busy   union of Compute, Copy and Enqueue on stream 0
//   communication  union of its Collective spans of step k, on any stream
//   transfer       the same from each `transfer_start` on; known only if known for all of them
//   exposed        the part of communication (of transfer) in which no compute runs, i.e. that is
//                  not covered by compute busy, of whatever step
//   overlap ratio  (communication - exposed) / communication
//   stall          Wait spans on stream 0
//   breakdown      stream 0 within the window, cut into activities, idle included: its sum is the
//                  step time, exactly
//
// Example, columns of 5 us:
//   s0 FFBBBBw0w.O    window 55 us; forward 10, backward 20, stall 10, inline collective 5, idle 5,
//   s1 ....11111      optimizer 5. Communication = 20..45 us = 25, exposed = 30..45 = 15,
//                     overlap ratio = 10 / 25 = 0.4
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "base/words.h"
#include "traces/trace.h"

#include <array>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::traces {

using dovetail::to_string;

inline constexpr StreamId kComputeStream{0};

// Which steps a view shows. Median: the one that median_step picks, moved to start at 0.
enum class Steps { Median, All };

// How every report calls a trace of this origin: "predicted" or "measured".
std::string_view label(Origin origin);

// What stream 0 can be doing. Copy is all other work on buckets: pack, unpack, scale. Collective:
// one that runs on stream 0 itself.
enum class Activity { Forward, Backward, Optimizer, Copy, Enqueue, Collective, Stall, Idle };
constexpr auto words_of(Activity) {
  return words("forward", "backward", "optimizer", "bucket copies", "enqueue", "inline collectives",
               "stall", "idle");
}
Activity activity_of(const CommandInfo& command);

// A duration per activity.
class Breakdown {
 public:
  Duration& operator[](Activity activity) { return time_[static_cast<std::size_t>(activity)]; }
  Duration operator[](Activity activity) const { return time_[static_cast<std::size_t>(activity)]; }
  [[nodiscard]] Duration total() const;
  friend bool operator==(const Breakdown&, const Breakdown&) = default;

 private:
  std::array<Duration, kWordCount<Activity>> time_{};
};

// One collective. Times count from the start of the step window. `exposed` is the part of
// start..end without compute; rows of collectives that are in flight together can count a moment
// twice.
struct BucketRow {
  CommandId command;
  std::optional<BucketId> bucket;
  std::string name;
  Bytes bytes;
  Duration start{};
  std::optional<Duration> transfer_start;
  Duration end{};
  Duration exposed{};
  friend bool operator==(const BucketRow&, const BucketRow&) = default;
};

// One wait of stream 0.
struct StallRow {
  CommandId command;
  std::optional<BucketId> bucket;
  std::string name;
  Duration start{};  // since the start of the step window
  Duration time{};
  friend bool operator==(const StallRow&, const StallRow&) = default;
};

struct StepReport {
  Origin origin = Origin::Simulated;
  std::int32_t step = 0;
  Instant start;  // of the step window
  Duration step_time{};
  Rank rank;  // whose numbers follow
  Duration compute_busy{};
  Duration communication{};
  std::optional<Duration> transfer;
  Duration exposed{};
  std::optional<Duration> exposed_transfer;
  Breakdown breakdown;
  std::vector<BucketRow> buckets;  // by start
  std::vector<StallRow> stalls;    // by start

  // Absent without communication.
  [[nodiscard]] std::optional<double> overlap_ratio() const;
  friend bool operator==(const StepReport&, const StepReport&) = default;
};

// Whether a span of this kind keeps the compute stream busy, so that a collective under it is hidden: ops,
// copies and launches.
bool is_compute(SpanKind kind);

// The spans of one rank, and of one of its streams.
std::span<const Span> spans_of(const Trace& trace, Rank rank);
std::span<const Span> spans_of(const Trace& trace, Rank rank, StreamId stream);

struct StepWindow {
  Instant start;
  Instant end;
  Rank slowest;
};

// REQUIRES for all: every step of the trace has a span, 0 <= step < trace.steps.
std::vector<StepWindow> step_windows(const Trace& trace);
std::vector<Duration> step_times(const Trace& trace);
StepReport step_report(const Trace& trace, std::int32_t step);
// The same step seen from another rank. REQUIRES: the rank is among trace.ranks.
StepReport step_report(const Trace& trace, std::int32_t step, Rank rank);
// The step whose time is the lower median; of equals the first.
std::int32_t median_step_index(const Trace& trace);
StepReport median_step(const Trace& trace);

// Nearest rank: the p-quantile of n values is the ceil(p n)-th smallest, so each is a value that
// occurred. The median of an even count is the lower one. `quick` is the mean of the quickest fifth of the
// values; of the last of them the part that makes it a fifth counts. It moves little where a quantile jumps:
// where now and then a value lies far from all others.
struct Spread {
  Duration median{}, p10{}, p90{}, min{}, quick{};
  friend bool operator==(const Spread&, const Spread&) = default;
};
// REQUIRES: not empty.
Spread spread(std::span<const Duration> values);

// Times of one step, in milliseconds: with three decimals, and with six where the step itself takes less
// than a millisecond. Reports print these; JSON has microseconds to the last nanosecond.
struct Milliseconds {
  int decimals = 3;
  [[nodiscard]] std::string operator()(Duration time) const;
};
Milliseconds milliseconds_of(Duration step_time);

// The report as a plain table, beginning with its label:
//   predicted step 0, rank 0 (times in ms)
//     step time               55.000
//     exposed communication   15.000
void print(std::ostream& out, const StepReport& report);

}  // namespace dovetail::traces
