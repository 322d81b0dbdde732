// The two figures of each plan of a run, measured and predicted, and how well they are known.
//
//   quiet step     the mean of the quickest fifth of the steps
//   typical step   their median
//
// The quiet step is a mean and no quantile: where about one step in ten meets no preemption, the 10th percentile
// is that of the steps with none or with one, by chance.
//
// Predicted, they are the same figures of steps drawn in simulation (sim/disturbed.h), a share of them
// from each round, with the times that ops, collectives and copies had in that round (interleaved_calibration.h) and the
// preemptions of the stretch of it in which the plan ran. So both sides met the same minute, and the same
// figure means the same thing on both. Of the plan's own steps only this stretch is known to the
// prediction, not how long any of them took.
//
// Known to: of the median, half the distance of the order statistics one standard error below and above it;
// of the mean m of the quickest fifth its standard error. With q, what a fifth of the steps stay below,
// m = q - E[(q - step)+] / (1/5), so it is that of the mean of (q - step)+, five times. Both as shares. They
// need no assumption about how steps are distributed but that they do not depend on each other; below eight
// steps nothing is known.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "calibrate/noise/interleaved_calibration.h"
#include "calibrate/noise/op_times.h"
#include "calibrate/noise/reference_load.h"
#include "exec/backend.h"
#include "exec/exchange.h"
#include "exec/measure.h"
#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"
#include "sim/disturbed.h"
#include "traces/disturbances.h"

namespace dovetail::testbed {

// Notes of a measured trace: what was predicted for it, in us, from costs measured between the rounds.
inline constexpr const char* kPredictedQuiet = "predicted quiet step us";
inline constexpr const char* kPredictedTypical = "predicted typical step us";

// 1 where nothing is known.
double quiet_known_to(std::span<const Duration> steps);
double typical_known_to(std::span<const Duration> steps);

// What one round tells about costs, on every rank.
struct RoundCosts {
  std::vector<std::vector<std::vector<StepOps>>> ops;  // [InterleavedProbes::ops][rank][step]
  RemeasuredCosts costs;                               // of collectives and copies
  traces::Disturbances away;
  std::vector<sim::DrawOptions::Stretch>
      ran;  // by plan: when its steps ran, from the start of the round
};

// What ran: plans in the first lanes, the probes in the last ones.
struct Ran {
  const InterleavedProbes& probes;
  std::span<const exec::Turn> turns;  // of each round
  const exec::Measured& measured;
  std::size_t plans = 0;
  Duration shield{};  // how long the network goes on without a rank
};

// Of one round, on every rank, while this rank's core did what `record` says, from `begin_ns` on.
RoundCosts costs_of_round(const exec::Exchange& exchange, const Ran& ran, std::size_t round,
                          const traces::CoreRecord& record, std::int64_t begin_ns);
// Of all rounds; what one does not tell is taken from the round before.
std::vector<RoundCosts> costs_of_rounds(const exec::Exchange& exchange, const Ran& ran,
                                        const ReferenceLoad& reference_load);

// Of plan number `plan`, which computes as InterleavedProbes::ops[between] does: draws from all rounds, taken together.
sim::Figures predict_over_rounds(const schedule::ScheduledProgram& program,
                                 const models::Costs& costs, std::span<const RoundCosts> rounds,
                                 std::size_t plan, std::size_t between, Duration shield);

}  // namespace dovetail::testbed
