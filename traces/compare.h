// A predicted Trace laid beside a measured one: how wrong the prediction is, and where.
//
// Each side gives its median step. Commands join on id and rank, never on names. A folded
// simulation traces fewer ranks than the job has: rank r of the measured trace stands beside rank r
// of the predicted one, or beside its last rank where r is beyond it. Ranks are compared from the
// slowest measured rank's point of view.
//
//   difference = predicted - measured        error = difference / measured
//
// so a negative number says that the prediction is too fast. Everywhere, on every line.
//
// Attribution. On each side the compute stream of the compared rank is cut into activities, idle
// included (metrics.h); they sum to that side's step time, exactly, in integer nanoseconds. So the
// differences per activity sum exactly to the difference of the step times:
//
//                          predicted ms    measured ms  difference ms     error
//   forward                      10.000         12.000         -2.000  -16.67 %
//   backward                     20.000         20.000          0.000    0.00 %
//   stall                        10.000         15.000         -5.000  -33.33 %
//   step time                    40.000         47.000         -7.000  -14.89 %
//
// Read: of 7 ms that the step took longer than predicted, 5 were spent at waits. Whether a stall is
// due to the link or to a late launch, the rows below say: communication, its transfer, and start
// and end of each bucket. What it does not say: causes. A slower backward can itself be due to
// contention with a collective.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/table.h"
#include "base/units.h"
#include "traces/metrics.h"
#include "traces/trace.h"

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::traces {

struct Pair {
  Duration predicted{};
  Duration measured{};
  [[nodiscard]] Duration difference() const { return predicted - measured; }
  // Absent where the measured time is 0.
  [[nodiscard]] std::optional<double> error() const;
  friend bool operator==(const Pair&, const Pair&) = default;
};

// One collective on both sides; start and end count from the start of each side's step.
struct BucketComparison {
  CommandId command;
  std::optional<BucketId> bucket;
  std::string name;
  Bytes bytes;
  Pair start;
  Pair end;
  std::optional<Pair> transfer;  // transfer start to end, where both sides know it
  Pair exposed;
  friend bool operator==(const BucketComparison&, const BucketComparison&) = default;
};

// One compute op or copy on both sides.
struct OpComparison {
  CommandId command;
  std::string name;
  Activity activity = Activity::Forward;
  Pair time;
  friend bool operator==(const OpComparison&, const OpComparison&) = default;
};

// A command without its counterpart, on any rank. Waits and enqueues are never listed: they have a
// span only where they took time.
enum class Mismatch { OnlyPredicted, OnlyMeasured, DifferentCommand };
struct Unmatched {
  CommandId command;
  Rank rank;  // of the measured trace
  std::string name;
  Mismatch what = Mismatch::OnlyPredicted;
  friend bool operator==(const Unmatched&, const Unmatched&) = default;
};

// One side: where it comes from and its median step, seen from the compared rank.
struct Side {
  Provenance provenance;
  std::int32_t steps = 1;
  Spread step_times;
  StepReport report;
  friend bool operator==(const Side&, const Side&) = default;
};

struct Comparison {
  Side predicted;
  Side measured;
  std::vector<BucketComparison> buckets;  // by measured start
  std::vector<OpComparison> ops;          // by measured start
  std::vector<Unmatched> unmatched;       // by rank, then command
  std::vector<std::string> notes;         // "world size: 4 predicted, 2 measured"

  [[nodiscard]] Pair step_time() const;
  [[nodiscard]] Pair activity(Activity activity) const;
  [[nodiscard]] Pair communication() const;
  [[nodiscard]] Pair exposed() const;
  [[nodiscard]] std::optional<Pair> transfer() const;          // where both sides know it
  [[nodiscard]] std::optional<Pair> exposed_transfer() const;  // where both sides know it
  friend bool operator==(const Comparison&, const Comparison&) = default;
};

// Any two traces can be compared; what does not fit is listed. REQUIRES: every step of each has a
// span.
Comparison compare(const Trace& predicted, const Trace& measured);

// Aligned plain text; at most 5 ops (the largest differences) and 10 unmatched commands.
void print(std::ostream& out, const Comparison& comparison);

// Its buckets, or its ops where there are none: the rows that CSV has.
Table rows_of(const Comparison& comparison);

// All of it as JSON, schema "dovetail.comparison/1".
std::string to_json(const Comparison& comparison);

}  // namespace dovetail::traces
