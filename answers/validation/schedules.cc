// Reads the table of measured schedules and compares predictions with it.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/schedules.h"

#include <algorithm>
#include <cmath>

#include "answers/validation/table.h"

namespace dovetail::yardsticks {

std::vector<ScheduleRow> load_schedules(const std::string& folder) {
  std::vector<ScheduleRow> rows;
  for (const TableRow& table : read_table(folder + "/schedules.csv")) {
    rows.push_back({.workload = folder + "/" + table.text("workload") + ".json",
                    .policy = table.text("policy"),
                    .group = table.text("workload"),
                    .measured = from_us(table.number("measured_ms") * 1e3)});
  }
  return rows;
}

ScheduleScore score_schedules(const std::vector<ScheduleRow>& rows,
                              const SchedulePredictor& predict) {
  ScheduleScore score;
  for (const ScheduleRow& row : rows) {
    const Duration predicted = predict(row);
    const double error = (to_us(predicted) / to_us(row.measured) - 1) * 100;
    score.mean_percent += std::abs(error) / static_cast<double>(rows.size());
    score.worst_percent = std::max(score.worst_percent, std::abs(error));
    for (const ScheduleError& other : score.rows) {
      if (other.row.group != row.group) continue;
      ++score.pairs;
      const bool was_faster = other.row.measured < row.measured;
      score.in_order += was_faster == (other.predicted < predicted) ? 1 : 0;
    }
    score.rows.push_back({.row = row, .predicted = predicted, .error_percent = error});
  }
  return score;
}

}  // namespace dovetail::yardsticks
