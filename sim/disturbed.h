// The two figures of a step on a machine that is disturbed: the quiet step and the typical one.
//
//   Figures figures = predict_figures(plan, costs, {.ops = recorded, .away = records}, {});
//   figures.quiet     the mean of the quickest fifth of the steps
//   figures.typical   the median
//
// Nothing is multiplied: steps are drawn and simulated, and the figures are those of what comes out, as they
// are those of measured steps on the other side. For a draw
//   - a recorded step is chosen at random and every rank takes the op times that it had in it: ops of one
//     step stay together, what made several ranks slow at once does so again, and the slowest of n ranks
//     comes out as it comes out in reality;
//   - a random stretch of the records of absences is played, the same one for all ranks, so what hits
//     them together hits them together.
// Collectives have the times of `costs`; they wait for absent ranks (sim/absences.h).
//
// Good where the records are typical of the time that is predicted: made beside it, or just before and
// after. Leaves out what slows collectives down and is no absence.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"
#include "traces/disturbances.h"

namespace dovetail::sim {

// The op times of one step on one rank, absences taken out.
using OpTimes = std::map<OpId, Duration>;

struct Recorded {
  std::vector<std::vector<OpTimes>>
      ops;                    // [rank][step], steps of all ranks at once; empty: the costs
  traces::Disturbances away;  // by rank; empty: nobody is ever away
};

struct DrawOptions {
  std::int32_t draws = 200;
  std::uint64_t seed = 1;
  Duration shield{};  // Absences::shield_ns
  // Steps begin and, undisturbed, end within this stretch of the records of absences. Absent: anywhere.
  struct Stretch {
    Duration from{};
    Duration to{};
  };
  std::optional<Stretch> within{};
};

struct Figures {
  Duration quiet{};
  Duration typical{};
  Duration early{};  // 10th percentile
  Duration late{};   // 90th percentile
  friend bool operator==(const Figures&, const Figures&) = default;
};

// Step times, one per draw, unsorted. REQUIRES: draws >= 1; the program passed verify; `ops` and `away`
// are empty or have an entry per rank of the program; ops in `ops` that the program runs are all there.
std::vector<Duration> draw_steps(const schedule::ScheduledProgram& program,
                                 const models::Costs& costs, const Recorded& recorded,
                                 const DrawOptions& options = {});

// One step of it, while `away` is played from `offset` on.
Duration play_with_absences(const schedule::ScheduledProgram& program, const models::Costs& costs,
                            const traces::Disturbances& away, Duration offset, Duration shield);

// By traces::spread. REQUIRES: not empty.
Figures figures_of(std::vector<Duration> steps);

}  // namespace dovetail::sim
