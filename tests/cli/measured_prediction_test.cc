// The cost model held against kept measurements of our own executor, without the hardware.
//
// traces/measured holds, for two workloads, a calibration and 15 schedules that were executed on two
// ranks and a shaped link. The plans are made again from the calibration and predicted anew, so a
// change of the model shows here.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "cli/inputs.h"
#include "cli/planner.h"
#include "schedule/policies.h"

namespace dovetail::cli {
namespace {

struct Errors {
  std::size_t schedules = 0;
  double mean = 0;
  double worst = 0;
};

// Of the predicted step times, as shares of the measured ones.
Errors errors_of(const std::string& workload, const std::string& measured) {
  const std::string root = DOVETAIL_SOURCE_DIR;
  Inputs inputs = load_inputs({.workload = workload,
                               .cluster = root + "/traces/measured/" + measured + "-machine.json",
                               .data_dir = root + "/models",
                               .world = {}});
  Planner planner(std::move(inputs.program), std::move(inputs.costs), inputs.all_reduce);
  const auto run =
      nlohmann::json::parse(read_file(root + "/traces/measured/" + measured + ".json"));
  Errors errors;
  for (const auto& row : run.at("rows")) {
    const schedule::PolicySpec spec = schedule::parse_policy(row.at("policy").get<std::string>());
    const double us = to_us(Duration(planner.evaluate(spec).summary.step_ns));
    const double error = std::abs(us / row.at("measured_step_us").get<double>() - 1);
    errors.mean += error / static_cast<double>(run.at("rows").size());
    errors.worst = std::max(errors.worst, error);
    ++errors.schedules;
  }
  std::cout << workload << ": mean " << errors.mean * 100 << " %, worst " << errors.worst * 100
            << " % over " << errors.schedules << " schedules\n";
  return errors;
}

TEST(MeasuredPredictionTest, TheMlpIsPredictedWithinThreeAndSixPercent) {
  const Errors errors = errors_of("mlp-1000mbit", "mlp-1gbit");
  EXPECT_EQ(errors.schedules, 15u);
  EXPECT_LE(errors.mean, 0.03);
  EXPECT_LE(errors.worst, 0.06);
}

TEST(MeasuredPredictionTest, TheTransformerIsPredictedWithinThreeAndSixPercent) {
  const Errors errors = errors_of("transformer-1000mbit", "transformer-1gbit");
  EXPECT_EQ(errors.schedules, 15u);
  EXPECT_LE(errors.mean, 0.03);
  EXPECT_LE(errors.worst, 0.06);
}

}  // namespace
}  // namespace dovetail::cli
