// Schedules drawn at random from the whole language, for the training job on two ranks: what both
// executors are held against (random_schedules_test.cc; tests/emulated/schedules_test.cc).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/training/program.h"
#include "schedule/plan_json.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <optional>

namespace dovetail::exec::testing {

struct Drawn {
  training::TrainingOptions options;
  schedule::Plan source;
  schedule::ScheduledProgram plan;
};

// The seed's model and Schedule, lowered and verified; nothing where a pass refuses it. Fails the test
// where verify finds problems.
std::optional<Drawn> draw(std::uint64_t seed, std::int64_t samples = 4);

}  // namespace dovetail::exec::testing
