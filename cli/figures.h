// The two figures of each plan of a run, measured and predicted, and how well they are known.
//
//   quiet step     10th percentile of the step times
//   typical step   their median
//
// Predicted, they are the same quantiles of steps drawn in simulation (sim/disturbed.h), a share of them
// from each round, with the times that ops, collectives and copies had in that round (between.h) and the
// absences of the stretch of it in which the plan ran. So both sides met the same minute, and the same
// quantile means the same thing on both. Of the plan's own steps only this stretch is known to the
// prediction, not how long any of them took.
//
// Known to: half the distance of the order statistics one standard error below and above the quantile, as
// a share of it. It needs no assumption about how steps are distributed but that they do not depend on
// each other; below eight steps nothing is known.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "cli/between.h"
#include "exec/backend.h"
#include "exec/measure.h"
#include "exec/op_times.h"
#include "models/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/disturbed.h"
#include "traces/disturbances.h"

namespace dovetail::cli {

inline constexpr double kQuietQuantile = 0.1;
inline constexpr double kTypicalQuantile = 0.5;

// Notes of a measured trace: what was predicted for it, in us, from costs measured between the rounds.
inline constexpr const char* kPredictedQuiet = "predicted quiet step us";
inline constexpr const char* kPredictedTypical = "predicted typical step us";

// 1 where nothing is known. REQUIRES: 0 < quantile < 1.
double known_to(std::span<const Duration> steps, double quantile);

// What one round tells about costs, on every rank.
struct RoundCosts {
  std::vector<std::vector<std::vector<exec::StepOps>>> ops;  // [Between::ops][rank][step]
  RemeasuredCosts costs;                                     // of collectives and copies
  traces::Disturbances away;
  std::vector<sim::DrawOptions::Stretch>
      ran;  // by plan: when its steps ran, from the start of the round
};

// When these timings of a plan ran: from the first start to the last end on the compute stream.
sim::DrawOptions::Stretch stretch_of(std::span<const exec::Timing> timings, std::int64_t begin_ns);

// Of plan number `plan`, which computes as Between::ops[between] does: draws from all rounds, taken together.
sim::Figures predict_over_rounds(const schedule::ScheduledProgram& program,
                                 const models::Costs& costs, std::span<const RoundCosts> rounds,
                                 std::size_t plan, std::size_t between, Duration shield);

}  // namespace dovetail::cli
