// Rounds piecewise linear costs once to whole ticks, a power of two of them to the nanosecond, so
// that the exact search adds and compares integers.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/ticks.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dovetail::search::internal {
namespace {

constexpr int kMostBits = 32;
constexpr int kFewestBits = 12;  // leaves times of up to 2^49 ns; tables end at kLongestTime

double value_at(const LinearPiece& piece, Bytes bytes) {
  return piece.base_ns + piece.ns_per_byte * static_cast<double>(bytes.count());
}

void check_pieces(std::span<const LinearPiece> pieces) {
  DOVETAIL_CHECK(!pieces.empty() && pieces[0].from == Bytes(0)) << "a curve begins at 0 bytes";
  DOVETAIL_CHECK(pieces[0].base_ns >= 0) << "a cost is not negative";
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    const LinearPiece& piece = pieces[k];
    DOVETAIL_CHECK(std::isfinite(piece.base_ns) && std::isfinite(piece.ns_per_byte)) << k;
    DOVETAIL_CHECK(piece.ns_per_byte >= 0) << "piece " << k << " falls";
    if (k == 0) continue;
    DOVETAIL_CHECK(pieces[k - 1].from < piece.from) << "pieces out of order at " << k;
    // Continuous curves meet at a knot only up to the rounding of doubles, which is that of what is
    // added: a steep piece begins far below nothing.
    const double here = value_at(piece, piece.from);
    const double before = value_at(pieces[k - 1], piece.from - Bytes(1));
    const double added = std::max({std::abs(piece.base_ns), std::abs(pieces[k - 1].base_ns), here});
    DOVETAIL_CHECK(before <= here + 1e-6 + 1e-12 * added) << "the cost falls at " << piece.from;
  }
}

// The most bits for which no grouping overflows; see Range in the header.
int choose_bits(const PartitionProblem& problem, std::span<const LinearPiece> pieces,
                std::int64_t total) {
  double base = 0;
  double slope = 0;
  for (const LinearPiece& piece : pieces) {
    base = std::max(base, std::abs(piece.base_ns));
    slope = std::max(slope, piece.ns_per_byte);
  }
  const auto n = static_cast<double>(problem.ready.size());
  const double last = problem.ready.empty() ? 0 : static_cast<double>(problem.ready.back().count());
  // One more nanosecond a bucket covers what rounding and the lift at the knots may add.
  const double longest = last + (n + 1) * (base + 1) + slope * (static_cast<double>(total) + 1);
  const int bits = std::min(kMostBits, 60 - std::ilogb(longest));
  if (bits < kFewestBits) {
    throw InputError("the last gradient and a bucket of each would take " +
                     dovetail::to_string(from_ns(longest)) +
                     " in a row, which is too long to search: at most " +
                     dovetail::to_string(Duration(std::int64_t{1} << (61 - kFewestBits))));
  }
  return bits;
}

}  // namespace

std::int64_t checked_total_bytes(const PartitionProblem& problem) {
  const std::size_t n = problem.size.size();
  DOVETAIL_CHECK(problem.ready.size() == n) << problem.ready.size() << " ready times, " << n;
  DOVETAIL_CHECK(n < std::numeric_limits<std::uint32_t>::max()) << n;
  // No early exit: the loop runs once a call, and this form vectorises.
  bool sound = n == 0 || problem.ready[0] >= Duration{};
  std::int64_t total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    total += problem.size[i].count();
    sound &= problem.size[i].count() >= 0;
  }
  for (std::size_t i = 1; i < n; ++i) sound &= problem.ready[i - 1] <= problem.ready[i];
  DOVETAIL_CHECK(sound) << "ready times must not fall, sizes must not be negative";
  return total;
}

LinearTicks::LinearTicks(const PartitionProblem& problem, std::span<const LinearPiece> pieces) {
  check_pieces(pieces);
  const std::int64_t total = checked_total_bytes(problem);
  // No bucket reaches a piece beyond all bytes together, so it need not fit the range either.
  while (pieces.back().from.count() > total) pieces = pieces.first(pieces.size() - 1);
  bits_ = choose_bits(problem, pieces, total);
  pieces_.reserve(pieces.size());
  for (const LinearPiece& piece : pieces) {
    Piece next{piece.from.count(), std::llround(std::ldexp(piece.base_ns, bits_)),
               std::llround(std::ldexp(piece.ns_per_byte, bits_))};
    if (!pieces_.empty()) {
      // Rounding may have let the cost fall a little at the knot. The methods need a cost that
      // never falls, so the piece is lifted to where the one before it ends.
      const Piece& last = pieces_.back();
      const Ticks reached = last.base + last.slope * (next.from - 1);
      next.base = std::max(next.base, reached - next.slope * next.from);
    }
    pieces_.push_back(next);
  }
}

}  // namespace dovetail::search::internal
