// The cost model held against kept measurements of our own executor, without the hardware.
//
// traces/measured holds pairs of files: NAME.json, schedules that were executed on two ranks and a
// shaped link, and NAME-machine.json, the calibration before them, whose notes name the workload. The
// plans are made again from the calibration and predicted anew, so a change of the model shows here.
// A new pair is judged without a change of this file.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answers/inputs.h"
#include "base/file.h"
#include "base/json.h"
#include "schedule/policies/policies.h"
#include "search/planner.h"

namespace dovetail::cli {
namespace {

const std::string kRoot = DOVETAIL_SOURCE_DIR;
const std::string kMeasured = kRoot + "/traces/measured/";
constexpr std::string_view kMachine = "-machine.json";
constexpr double kMeanError = 0.03;
constexpr double kWorstError = 0.06;

// The names of all pairs, sorted.
std::vector<std::string> measurements() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kMeasured)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(kMachine)) continue;
    names.push_back(file.substr(0, file.size() - kMachine.size()));
  }
  std::ranges::sort(names);
  return names;
}

nlohmann::json json_of(const std::string& file) {
  return nlohmann::json::parse(read_file(kMeasured + file));
}

struct Errors {
  std::size_t schedules = 0;
  double mean = 0;
  double worst = 0;
  std::string worst_policy;
};

// Of the predicted step times, as shares of the measured ones.
Errors errors_of(const std::string& name) {
  const std::string machine = name + std::string(kMachine);
  predict::Inputs inputs =
      predict::load_inputs({.workload = json_of(machine).at("notes").at("workload"),
                            .cluster = kMeasured + machine,
                            .data_dir = kRoot + "/models",
                            .world = {}});
  search::Planner planner(std::move(inputs.program), std::move(inputs.machine.costs));
  const auto run = json_of(name + ".json");
  Errors errors;
  for (const auto& row : run.at("rows")) {
    const auto policy = row.at("policy").get<std::string>();
    const double us =
        to_us(Duration(planner.evaluate(schedule::parse_policy(policy)).summary.step_ns));
    const double error = std::abs(us / row.at("measured_step_us").get<double>() - 1);
    errors.mean += error / static_cast<double>(run.at("rows").size());
    if (error >= errors.worst) {
      errors.worst = error;
      errors.worst_policy = policy;
    }
    ++errors.schedules;
  }
  return errors;
}

class MeasuredPredictionTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MeasuredPredictionTest, TheModelIsWithinThreePercentInTheMeanAndSixAtWorst) {
  const Errors errors = errors_of(GetParam());
  std::cout << GetParam() << ": mean " << errors.mean * 100 << " %, worst " << errors.worst * 100
            << " % (" << errors.worst_policy << ") over " << errors.schedules << " schedules\n";
  EXPECT_GE(errors.schedules, 10u);
  EXPECT_LE(errors.mean, kMeanError);
  EXPECT_LE(errors.worst, kWorstError) << errors.worst_policy;
}

INSTANTIATE_TEST_SUITE_P(Kept, MeasuredPredictionTest, ::testing::ValuesIn(measurements()),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST(MeasurementsTest, AreKeptForBothWorkloads) {
  std::vector<std::string> workloads;
  for (const std::string& name : measurements()) {
    workloads.push_back(json_of(name + std::string(kMachine)).at("notes").at("workload"));
  }
  EXPECT_GE(std::ranges::count(workloads, "mlp-1000mbit"), 1);
  EXPECT_GE(std::ranges::count(workloads, "transformer-1000mbit"), 1);
}

TEST(MeasurementsTest, EveryRunHasItsCalibration) {
  for (const auto& entry : std::filesystem::directory_iterator(kMeasured)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(".json") || file.ends_with(kMachine)) continue;
    const std::string machine = file.substr(0, file.size() - 5) + std::string(kMachine);
    EXPECT_TRUE(std::filesystem::exists(kMeasured + machine)) << machine;
  }
}

}  // namespace
}  // namespace dovetail::cli
