// What a recorded step runs now, what the best that can be set there takes, and what lies between:
// one answer, whoever asks (explore, diagnose, evaluate).
//
//   options.recorded = recorded_run(program, recorded);  // a row of the sweep: what there is now
//   Sweep sweep = run_sweep(planner, options);
//   RecordedAnswer answer = recorded_answer(planner, bounds, recorded, sweep);
//   in_words(answer)     "64.1 ms a step against 76.9 ms now (recorded: 76.1 ms, +1.0 %): 12.8 ms
//                        less (10 ms to 15.1 ms)"
//
// The step now is that of the recorded buckets, simulated like every other one; the recorded one
// stands beside it. The gain is the difference of two simulated steps. Its interval holds what the
// recording does not tell (models::CostBounds), and by how much the workload misses the recorded
// step (models::RecordedStep::off). A gain that may be none is not told.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>

#include "base/units.h"
#include "models/costs/costs.h"
#include "models/workloads/profile.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "search/planner.h"
#include "search/sweep.h"

namespace dovetail::search {

// Of the step time; positive is faster.
struct Gain {
  Duration middle{}, low{}, high{};
  friend bool operator==(const Gain&, const Gain&) = default;
};

// The recorded buckets as a Schedule of the Program, which is that of the recording, laid out on
// any ranks. Nothing where its gradients are reduced otherwise now: twice, or stage by stage.
// Throws InputError for gradients that cannot share a bucket.
std::optional<RecordedRun> recorded_run(const schedule::Program& program,
                                        const models::RecordedStep& recorded);

// Gains of any Schedules against what runs now.
class Gains {
 public:
  // `off`: how far each of them may be off besides.
  Gains(const schedule::Program& program, const models::Costs& costs,
        const models::CostBounds& bounds, schedule::Schedule now, Duration off);

  // Nothing for what runs now, whatever is not known.
  [[nodiscard]] Gain of(const schedule::Schedule& schedule);
  // As the machine's costs have it.
  [[nodiscard]] Duration now() const { return now_[0]; }

 private:
  std::array<Planner, 3> planners_;  // of the costs, cheap, dear
  schedule::Schedule runs_;
  Duration off_;
  std::array<Duration, 3> now_{};
};

struct RecordedAnswer {
  std::optional<Duration>
      recorded;    // a step as it was; absent where the machine is taken to be another one
  Duration now{};  // the same buckets, simulated
  Gain gain;       // of the best against them
  // Whether the gain is one for certain; else the buckets are best left as they are.
  [[nodiscard]] bool is_told() const { return gain.low > Duration{}; }
};

// Of the best row against that of what was recorded. Nothing where the sweep has no such row.
std::optional<RecordedAnswer> recorded_answer(const Planner& planner,
                                              const models::CostBounds& bounds,
                                              const models::RecordedStep& recorded,
                                              const Sweep& sweep);

std::string in_words(const RecordedAnswer& answer);

}  // namespace dovetail::search
