// A lower bound on the step of blocks whose parameters are gathered before each use, from sums over its phases.
//
// Nothing of a step travels before the compute of the step before is over. Forward and backward are two halves, whose ops
// first read parameters at stops; at most M bytes are gathered at a time. With the least time t(x) of transfers of x bytes and what
// they take from compute, l(x) (TravelLines), an op that has read y bytes with those before it in its half begins, for any stop
// p before it,
//
//   at p + max(compute between + l(x), t(x))     x = y - bytes released at p - M
//
// as no more than that was gathered when p began: nothing where a step begins, M where another half was before. In backward
// reductions that are launched before its last gather can be stand before that. Backward ends behind what is left at any
// stop of gathers and reductions, and the last reduction and its update behind the last gradient.
//
// And all transfers of a step, on one stream, take no longer than the step. A block stays from forward to backward, that which
// holds the last parameter of forward. Which that is is not known, so the bound is the least over all that fit into M: a large
// one saves gathers in backward, but forward waits for all of it where it first reads any of it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/units.h"
#include "models/rates/linear_piece.h"
#include "search/clock_bound.h"
#include "search/step_data.h"

namespace dovetail::search {

// Buckets of about as many bytes of gradients: the least of each.
struct TravelKnot {
  double from = 0, to = 0;          // bytes
  double ns = 0;                    // that one takes
  std::array<double, 3> lost = {};  // ns of compute beside it, by KernelClass,
  std::array<double, 3> done = {};  // and what is done there
};
using TravelKnots = std::vector<TravelKnot>;  // rising

// What buckets up to a size cost, together.
class TravelLines {
 public:
  // `most`: bytes of one bucket.
  TravelLines(const TravelKnots& knots, double most);
  // Of buckets that hold so many bytes together.
  [[nodiscard]] double least_time(double bytes) const;
  // What they take from compute at least, beside any; and beside as much of each class, where they stand alone once that is done.
  [[nodiscard]] double least_lost(double bytes) const { return std::max(0.0, bytes) * any_lost_; }
  [[nodiscard]] double least_lost(double bytes, const std::array<double, 3>& compute) const;
  [[nodiscard]] std::span<const TravelKnot> knots() const { return knots_; }
  [[nodiscard]] std::span<const models::LinearPiece> lines() const { return lines_; }

 private:
  std::span<const TravelKnot> knots_;
  double most_ = 0;
  std::vector<models::LinearPiece> lines_;  // a + b x, a and b not negative, under all knots
  double rate_ = 0;                         // ns a byte, at least
  double any_lost_ = 0;                     // the same of compute,
  std::array<double, 3> lost_ = {}, done_ = {};
};

// A transfer beside compute, as the clock has it (clock_bound.h).
ClockProblem::Travel travel_beside(models::Contention contention, const sim::TransferCost& cost);

// Of the reductions of all buckets that there may be, and of their gathers. REQUIRES: sharding, for gathers.
TravelKnots reduction_knots(const StepData& data);
TravelKnots gather_knots(const StepData& data);

// Those of one StepModel, made once.
struct BoundKnots {
  std::once_flag made;
  TravelKnots reductions, gathers;
};

// Updates of all gradients from each one on: in one op, or each alone, where that is measured to be less. REQUIRES: sharding.
std::vector<double> least_updates(const StepData& data, std::size_t lane);

// What is gathered at most at a time with these choices: bytes of gradients; by the limit of the frame, if it has one.
// REQUIRES: parameters are gathered before each use.
std::int64_t most_gathered(const StepData& data, std::span<const BucketChoice> choices);

// REQUIRES: parameters are gathered before each use, and the kind says how.
Duration gather_bound(const StepData& data, const BoundKnots& knots, const BoundKind& kind);

}  // namespace dovetail::search
