// Steps of one recorded workload under several schedules, as others measured them: how right a schedule's price is where compute is known.
//
//   for (const ScheduleRow& row : load_schedules(folder)) ... row.workload, row.policy, row.measured
//   score_schedules(rows, predict)           // predict: ScheduleRow -> a Duration
//
// schedules.csv names a profile in `folder` (models/workloads/profile.h) and a policy; what the policies stand for is in README.md.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/units.h"

namespace dovetail::yardsticks {

struct ScheduleRow {
  std::string workload;  // path of the profile
  std::string policy;    // as --policy takes it
  std::string group;     // rows of one workload, which are ranked against each other
  Duration measured{};
};

// Throws InputError with file and line.
std::vector<ScheduleRow> load_schedules(const std::string& folder);

struct ScheduleError {
  ScheduleRow row;
  Duration predicted{};
  double error_percent = 0;  // predicted / measured - 1
};
struct ScheduleScore {
  std::vector<ScheduleError> rows = {};
  double mean_percent = 0, worst_percent = 0;  // of the absolute errors
  std::int64_t pairs = 0,
               in_order = 0;  // of one group: whether the faster one is predicted to be faster
};
using SchedulePredictor = std::function<Duration(const ScheduleRow&)>;
ScheduleScore score_schedules(const std::vector<ScheduleRow>& rows,
                              const SchedulePredictor& predict);

}  // namespace dovetail::yardsticks
