// A legal Schedule changes time, never results: a small training job under several schedules ends with the same weights,
// on every kind of device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/selftest/row.h"
#include "exec/training/data.h"
#include "schedule/scheduled_program.h"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dovetail::exec::selftest {

inline constexpr std::int32_t kLawSteps = 4;

// What this rank has learned after kLawSteps steps of a plan.
using Train = std::function<training::Trained(const schedule::ScheduledProgram&)>;

// One way to execute a schedule.
struct LawCase {
  std::string name;  // "graph, torch-ddp:cap=8KiB"
  std::string policy;
  Train train;
};

struct LawJob {
  std::string backend;     // of the rows
  std::int64_t ranks = 2;  // of the job
  std::string suffix;      // of names: ", 2 ranks"
  Train train_naive;       // the reference
  std::vector<LawCase> cases;
  // Weights that were compared and that differ, summed up over ranks; empty: this rank speaks for all.
  std::function<std::array<std::int64_t, 2>(const std::array<std::int64_t, 2>&)> sum{};
};

// A row for the reference and one for each case.
std::vector<Row> law_rows(const LawJob& job);

}  // namespace dovetail::exec::selftest
