// Fits a line alpha + beta * bytes to measured times, and says how badly it fits.
//
//   minimise  sum over samples of ((alpha + beta * bytes - time) / time)^2     alpha, beta >= 0
//
// Relative weights, because sizes span decades: with plain least squares the largest sizes decide
// and small ones may be wrong several times over. Where the free optimum has a negative coefficient
// the best fit on the boundary is taken (with two unknowns: one of them 0).
//
// calibrate uses it for copies and for the time between collectives, and as a check of validity: a
// shaped link whose own times do not lie on a line was disturbed. It is never the final model of a
// collective over NCCL (collective_table.h says why).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/rates/collective_table.h"

#include <span>

namespace dovetail::models {

struct TimedBytes {
  Bytes bytes;
  Duration time{};
};

struct AlphaBetaFit {
  AlphaBeta line;
  double median_residual = 0;  // of |fit - time| / time over the samples
  double max_residual = 0;
};

// REQUIRES: at least two samples of different sizes; bytes >= 0, times > 0.
AlphaBetaFit fit_alpha_beta(std::span<const TimedBytes> samples);

}  // namespace dovetail::models
