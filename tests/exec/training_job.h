// Runs the training job under a plan on real ranks (threads) and collects its weights.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/training/data.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dovetail::exec::testing {

struct Trained {
  std::map<std::string, std::vector<float>> weights;  // of all ranks, by parameter
  std::vector<double> losses;                         // mean over the ranks that have one, by step
  std::string disagreement;  // replicas that hold different weights; empty when all agree (GMI6)
};

// The plan of a Schedule, verified. Throws InputError where lower refuses; fails the test where
// verify finds problems.
schedule::ScheduledProgram legal_plan(const schedule::Program& program,
                                      const schedule::Schedule& schedule);

Trained train(const schedule::ScheduledProgram& plan, std::int32_t steps,
              const training::Hyperparameters& hyperparameters = {});

// "" if every weight is within rtol and atol of the reference, else the worst one.
struct Tolerance {
  double relative = 1e-5;
  double absolute = 1e-8;
};
std::string differences(const Trained& reference, const Trained& other,
                        const Tolerance& tolerance = {});

}  // namespace dovetail::exec::testing
