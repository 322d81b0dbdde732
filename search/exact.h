// The exact optimum over all groupings of the gradients into consecutive buckets, on one FIFO link.
//
// Gradients are ready at r_1 <= .. <= r_n and have prefix sizes S. A bucket i+1..j starts when its
// last gradient is ready and the bucket before it has finished, and takes T(S_j - S_i). So
//
//   f(j) = min over i < j of max(r_j, f(i)) + T(S_j - S_i),   f(0) = 0
//
// and f(n) is the earliest possible end of the last collective: an earlier finish never hurts.
// Contention, launch cost and priorities are left out; with them f(n) is a lower bound at best.
//
// T is a curve of k linear pieces that never falls; one monotone deque for each finds the optimum in O(k n)
// (exact_piecewise.cc). Tests hold it against all 2^(n-1) groupings (tests/support/partition_judges.h).
//
// Exactness. The deques compare f(i) - b * S_i, so T must be a sum of a term in i and a term in j;
// a T rounded to nanoseconds is not. Hence the linear costs are rounded once, when a call begins: a
// and b become whole numbers of 2^-k ns (and per byte), and all sums are exact integers in that
// unit. k is the largest number up to 32 for which no grouping can overflow: b is off by at most
// 2^-33 ns a byte where the last ready time and all costs add up to under 2^29 ns (half a second),
// and 2^-28 under 2^34 ns (17 s). Only results are rounded, to the nearest nanosecond. Every
// function here with a linear cost uses that one rounding; so answers are equal, not close.
//
// Ties. Each f(j) is reached by the latest start; then neighbouring buckets are joined, from the last on, where
// that costs no time.
//
// REQUIRES, everywhere: ready is non-decreasing and not negative, sizes are not negative, both have
// the same length, costs are finite and not negative. Throws InputError, everywhere with a linear cost,
// where the last ready time and n buckets could add up to 2^49 ns (6.5 days). All gradients must be
// allowed to share a bucket: the caller splits by process group, dtype and reduction.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/rates/linear_piece.h"

#include <cstddef>
#include <span>
#include <vector>

namespace dovetail::search {

struct PartitionProblem {
  std::vector<Duration> ready;  // in gradient-ready order
  std::vector<Bytes> size;
  friend bool operator==(const PartitionProblem&, const PartitionProblem&) = default;
};

// A curve of linear pieces. REQUIRES: T never falls, also not from one piece to the next.
using models::LinearPiece;

struct Partition {
  std::vector<std::size_t> ends;  // exclusive end of each bucket; the last one is n
  Duration finish{};              // of the last bucket; 0 without gradients
  friend bool operator==(const Partition&, const Partition&) = default;
};

// The optimum.
Partition exact_partition(const PartitionProblem& problem, std::span<const LinearPiece> pieces);

// By how much the optimum of a linear cost may differ from that of the curve as it is given, for the
// unit in which it is counted: one unit for each bucket and each byte. Nothing for most models, 32 ns
// for 16 GiB that take 3 s.
Duration rounding_of(const PartitionProblem& problem, std::span<const LinearPiece> pieces);

}  // namespace dovetail::search
