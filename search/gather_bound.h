// A lower bound on the step of blocks whose parameters are gathered before each use, from sums over its phases.
//
// A step of one micro-step is a forward of F ns of compute that reads parameters of G bytes, and a backward of B ns that reads
// them again. Nothing of a step travels before the compute of the step before is over. With the least time t(x) of transfers
// of x bytes, of which the compute beside goes on at the rate r at best (TravelLines):
//
//   the first op waits for its own parameters, e ns; all gathers of forward are over when forward is, so it takes at least
//     max(e + F + (1 - r) (t(G) - e), t(G) + compute behind the first reader of the block that stays)
//   at most M bytes are gathered at a time, so where backward begins at least G - M bytes of its gathers are still to travel,
//     and all reductions, of which that of the last gradient begins behind all backward:
//     max(B + (1 - r) (...) + last reduction + its update, t(G - M) + reductions + an update)
//
// And all transfers of a step, on one stream, take no longer than the step. A block stays from forward to backward, that of
// the gradients that are ready first; how many those are is not known, so the bound is the least over all that fit into M:
// a large one saves gathers in backward, but forward waits for all of it where it first reads any of it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

// Lines a + b x, a and b not negative, under the time of every bucket of x bytes of gradients, and the most that one leaves
// of compute beside it.
struct TravelLines {
  std::vector<models::LinearPiece> lines;
  double left = 0;
  // Of buckets that hold so many bytes together, at most `most` each.
  [[nodiscard]] double least_time(double bytes, double most) const;
};

// A transfer beside compute, as the clock has it (clock_bound.h).
ClockProblem::Travel travel_beside(models::Contention contention, const sim::TransferCost& cost);

// Of the reductions of all buckets that there may be, and of their gathers. REQUIRES: sharding, for gathers.
TravelLines reduction_lines(const StepData& data);
TravelLines gather_lines(const StepData& data);

// Those of one StepModel, made once.
struct BoundLines {
  std::once_flag made;
  TravelLines reductions, gathers;
};

// Updates of all gradients from each one on: in one op, or each alone, where that is measured to be less. REQUIRES: sharding.
std::vector<double> least_updates(const StepData& data, std::size_t lane);

// What is gathered at most at a time with these choices: bytes of gradients; by the limit of the frame, if it has one.
// REQUIRES: parameters are gathered before each use.
std::int64_t most_gathered(const StepData& data, std::span<const BucketChoice> choices);

// REQUIRES: parameters are gathered before each use, and the kind says how.
Duration gather_bound(const StepData& data, const TravelLines& reductions,
                      const TravelLines& gathers, const BoundKind& kind);

}  // namespace dovetail::search
