// How long one collective takes against its bytes: a measured table, read between its points.
//
//   CollectiveTable table(points);                   // rising sizes, at least two of them
//   table.time(mib(25)).isolated                     // 5 to 30 ns: a search within one octave
//   table.hull(TimeKind::Smaller)                    // pieces for the exact search
//
// A table is a list of knots joined by straight lines, through the measured points; above the table the line
// through the last two goes on, below it the time of the smallest size holds, unless it has the shape of another table there
// (extended_below). `accuracy` tells how well
// points are met when each is left out in turn and predicted from its neighbours. Measured curves are neither smooth
// nor monotone (protocols change with size), so no single alpha-beta line is ever fitted over them.
//
// Why lines: one rule for all tables, else 1 % of noise in one point may change the rule and with it every time. Over all
// points of models/clusters, left out in turn, lines miss by 4.7 % in the mean (2.1 in the median), power laws by 5.5 (3.1),
// monotone cubics by 4.7 (2.1), the better one of lines and power laws of each table by 4.7 (2.1). Beyond the largest size the
// last slope is no worse than any shape of a model: cut at 64 MiB it misses larger sizes by 5 % in the median.
//
// The hull H(x) = min over y >= x of T(y) never falls: a bucket may be padded to a faster size. It
// is the largest non-decreasing curve below T, so an optimum computed on it is a lower bound for T.
//
//   T  101.9 us at 1 MiB, 101.4 at 2 MiB, 101.5 at 4 MiB      a falling stretch
//   H  101.4 us at 1 MiB, 101.4 at 2 MiB, 101.5 at 4 MiB
//
// Latency. What of a collective's time is no transfer: the line through the first two knots, continued to 0 bytes, but
// never more than any size takes, and nothing where the table begins at 1 MiB or more (below its own sizes an extended one begins at 1 byte). Several collectives that share a
// link share its bandwidth and wait out their latencies side by side (sim/rates.h). They may not move more bytes together
// than the link was ever seen to, so a message keeps the link busy for at least its bytes over the largest rate of the
// table: of a table that begins at 0 bytes, a formula, also the rate that it tends to.
//
// Leaves out contention (Contention in costs.h) and skew: times are of ranks that start together.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/rates/linear_piece.h"
#include "models/rates/spread.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dovetail::models {

struct CollectiveTime {
  Duration isolated{};
  Duration back_to_back{};
  friend bool operator==(const CollectiveTime&, const CollectiveTime&) = default;
};

// One measured size. `bytes` is the whole buffer: the message of an all-reduce, the gathered result
// of an all-gather, the input of a reduce-scatter.
struct CollectivePoint {
  Bytes bytes;
  Duration isolated{};
  std::optional<Duration> back_to_back{};  // absent: as isolated
  std::optional<Duration> p10{}, p90{};    // of `isolated`
  friend bool operator==(const CollectivePoint&, const CollectivePoint&) = default;
};

// T(bytes) = alpha + ns_per_byte * bytes.
struct AlphaBeta {
  Duration alpha{};
  double ns_per_byte = 0;
  friend bool operator==(const AlphaBeta&, const AlphaBeta&) = default;
};

// Relative errors when each inner point is predicted from its two neighbours: 0.05 is 5 %. Over inner points
// from 1 MiB to 512 MiB, where buckets live; over all inner points where fewer than three of those exist.
struct TableAccuracy {
  double median = 0;
  double worst = 0;
  std::size_t points = 0;  // how many points were left out in turn
};

// The value of a hull at one size. REQUIRES: pieces.front().from == 0 bytes, bytes >= 0.
Duration evaluate(std::span<const LinearPiece> pieces, Bytes bytes);

// Which time a hull is made of. Smaller: the lesser of both at each size, hence a lower bound
// whatever the gap before the collective is.
enum class TimeKind { Isolated, BackToBack, Smaller };

// What a message of this size takes in a busy queue, measured again.
struct SizeTime {
  Bytes bytes;
  Duration time{};
  friend bool operator==(const SizeTime&, const SizeTime&) = default;
};

class CollectiveTable {
 public:
  // REQUIRES: at least two points, sizes >= 1 byte and strictly rising, times > 0.
  explicit CollectiveTable(std::span<const CollectivePoint> points);
  explicit CollectiveTable(const AlphaBeta& line) : CollectiveTable(line, line) {}
  CollectiveTable(const AlphaBeta& isolated, const AlphaBeta& back_to_back);

  // From `bytes` on: time + slope * (x - bytes), both kinds of time, and how far the lone one strays.
  // Below the first knot its times hold.
  struct Knot {
    double bytes = 0;
    double isolated_ns = 0;
    double back_to_back_ns = 0;
    double isolated_slope = 0;
    double back_to_back_slope = 0;
    Spread spread = {};
    friend bool operator==(const Knot&, const Knot&) = default;
  };
  // What `knots()` of another table gave. REQUIRES: at least one, sizes >= 0 and strictly rising.
  explicit CollectiveTable(std::vector<Knot> knots);

  // At most 1e12 us. REQUIRES: bytes >= 0.
  [[nodiscard]] CollectiveTime time(Bytes bytes) const;

  // What of the time of the smallest messages is latency; the lesser one of both kinds of time.
  [[nodiscard]] Duration latency() const;
  // The same of a message of this size: no more than what the largest rate of either kind leaves of its time.
  [[nodiscard]] Duration latency(Bytes bytes) const;

  // Between its neighbours' shares, in proportion to the bytes; beyond the ends theirs.
  [[nodiscard]] Spread spread(Bytes bytes) const;
  // The table at this quantile of its spread, 0 <= quantile <= 1; both kinds of time alike. The result
  // has no spread.
  [[nodiscard]] CollectiveTable drawn(double quantile) const;

  // Non-decreasing pieces from 0 bytes on; the last one holds for ever.
  [[nodiscard]] std::vector<LinearPiece> hull(TimeKind kind) const;

  [[nodiscard]] const std::vector<Knot>& knots() const { return knots_; }
  // Whether all times are equal, whatever the tables were made of.
  friend bool operator==(const CollectiveTable& a, const CollectiveTable& b) {
    return a.knots_ == b.knots_;
  }

  // Absent for a line and for a table made of other tables.
  [[nodiscard]] const std::optional<TableAccuracy>& accuracy() const { return accuracy_; }

  // One after the other: an all-reduce made of a reduce-scatter and an all-gather.
  friend CollectiveTable operator+(const CollectiveTable& first, const CollectiveTable& second);
  // `share` of every time. REQUIRES: share > 0.
  [[nodiscard]] CollectiveTable scaled(double share) const;
  // The table as it is where these times were measured again. Both kinds of time move by the difference of
  // the time in a queue: between two sizes it is linear in the bytes, below the smallest it stays, beyond the
  // largest it grows with the time. No time falls below a fifth of what it was, else the result is exact at these
  // sizes. REQUIRES: sizes >= 1 byte and strictly rising, times > 0.
  [[nodiscard]] CollectiveTable remeasured(std::span<const SizeTime> times) const;
  // Below the first knot this table has the other one's times, in proportion so that both meet at that knot.
  [[nodiscard]] CollectiveTable extended_below(const CollectiveTable& shape) const;
  // The table T'(bytes) = T(factor * bytes). REQUIRES: factor > 0.
  [[nodiscard]] CollectiveTable with_bytes_times(double factor) const;

 private:
  CollectiveTable() = default;
  // The last knot at or below this size; the first one where there is none.
  [[nodiscard]] const Knot& knot_at(double bytes) const;
  // Sets all slopes but the last from the knots' times, and fills octave_.
  void join_knots();
  void index_knots();  // fills octave_, and finds the rates
  void find_rates();   // and the latency

  std::vector<Knot> knots_;  // sizes strictly rising; not empty
  // [w]: how many knots lie at or below 2^(w-1) bytes, at least 1. A size of w bits is searched for
  // between the entries of w and w + 1 only, which is a handful of knots.
  std::array<std::uint32_t, 65> octave_{};
  double isolated_byte_ns_ = 0;  // at the largest rate of each kind of time
  double back_to_back_byte_ns_ = 0;
  double latency_ns_ = 0;
  std::optional<TableAccuracy> accuracy_;
};

}  // namespace dovetail::models
