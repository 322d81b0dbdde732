// Sets of moments as sorted, disjoint intervals: the one place where spans are united.
//
//   union_of({[0,10) [5,12) [20,30)})            [0,12) [20,30)
//   uncovered([8,25), {[0,12) [20,30)})          8 ns: the part 12..20
//   without({[8,25)}, {[0,12) [20,30)})          [12,20)
//
// Intervals are half open; empty ones cover nothing and vanish.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <span>
#include <vector>

namespace dovetail::traces {

struct Interval {
  Instant start;
  Instant end;
  [[nodiscard]] Duration length() const { return end - start; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

// The same moments, each once: sorted, with a gap between any two. Cost: one sort.
// REQUIRES: start <= end for each.
std::vector<Interval> union_of(std::vector<Interval> intervals);

// REQUIRES: `intervals` is a union.
Duration length(std::span<const Interval> intervals);

// The parts of `intervals` that no member of `cover` touches. REQUIRES: both are unions.
std::vector<Interval> without(std::span<const Interval> intervals, std::span<const Interval> cover);

// How much of the interval no member of `cover` touches. Cost: a binary search plus the members
// that touch it. REQUIRES: `cover` is a union.
Duration uncovered(Interval interval, std::span<const Interval> cover);

// The same for a set. REQUIRES: both are unions.
Duration uncovered(std::span<const Interval> intervals, std::span<const Interval> cover);

}  // namespace dovetail::traces
