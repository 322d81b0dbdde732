// A recorded step is one thing, whoever asks: its host goes with it to every machine.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "answers/inputs.h"
#include "answers/plan_machine.h"
#include "base/file.h"
#include "models/workloads/workload.h"
#include "schedule/plan_json.h"
#include "schedule/policies/policies.h"
#include "search/planner.h"

namespace dovetail::predict {
namespace {

using std::chrono::microseconds;

const std::string kFolder = DOVETAIL_SOURCE_DIR "/models";

// A host that takes 600 us to issue what the device computes in 100: 300 for forward, 200 for the
// gradient, 60 for the updates, 40 for the one bucket.
std::string host_bound_step() {
  const std::string path = ::testing::TempDir() + "/host_bound_step.json";
  write_file(path, R"({"name": "bound", "world_size": 2, "bucket_call_us": 40,
    "host": {"forward": {"compute_us": 40, "issue_us": 300}, "rest": {"compute_us": 0, "issue_us": 0},
             "optimizer": {"compute_us": 10, "issue_us": 60}},
    "profile": {"forward_us": 300, "backward_us": 250, "optimizer_us": 60,
      "gradients": [{"name": "g", "numel": 1024, "dtype": "float32", "ready_us": 250,
                     "compute_us": 50, "issue_us": 200}]},
    "all_reduce_alone": [{"bytes": 1024, "us": 5}, {"bytes": 8192, "us": 6}]})");
  return path;
}

Duration step_of(InputOptions options) {
  options.workload = host_bound_step();
  options.data_dir = kFolder;
  Inputs inputs = load_inputs(options);
  search::Planner planner(std::move(inputs.program), inputs.machine.costs);
  return Duration(planner.evaluate(schedule::parse_policy("torch-ddp")).summary.step_ns);
}

// Expectation: the host issues a step in 300 + 200 + 40 + 60 = 600 us, whatever the device does.
TEST(RecordedStepTest, TheHostGoesWithTheStepToEveryMachineAndLayout) {
  EXPECT_EQ(step_of({}), microseconds(600));
  EXPECT_EQ(step_of({.cluster = "a100x2_nv12"}), microseconds(600));
  EXPECT_EQ(step_of({.cluster = "a100x8", .layout = parse_layout("dp=8")}), microseconds(600));
  EXPECT_EQ(step_of({.cluster = "h100x64", .layout = parse_layout("dp=64")}), microseconds(600));
  EXPECT_EQ(step_of({.cluster = host_bound_step()}), microseconds(600));
}

// --world asks for a file's step on other ranks, as it does for a model of the zoo.
TEST(RecordedStepTest, WorldLaysOutARecordedStep) {
  const Inputs inputs = load_inputs(
      {.workload = host_bound_step(), .cluster = "h100x64", .data_dir = kFolder, .world = 16});
  EXPECT_EQ(inputs.program.world_size, 16);
  EXPECT_EQ(step_of({.cluster = "h100x64", .world = 16}), microseconds(600));
}

// A machine of another profile issues what was recorded as it was recorded, not as its own step.
TEST(RecordedStepTest, TheMachineOfAnotherProfileTakesTheHostOfTheStep) {
  EXPECT_EQ(step_of({.cluster = "mlp-1000mbit"}), microseconds(600));
}

TEST(RecordedStepTest, AHostTwiceAsFastIssuesItInHalfTheTimeThere) {
  const models::WhatIf twice = models::parse_what_if("host=2x");
  EXPECT_EQ(step_of({.what_if = twice}), microseconds(300));
  EXPECT_EQ(step_of({.cluster = "a100x8", .layout = parse_layout("dp=8"), .what_if = twice}),
            microseconds(300));
}

TEST(RecordedStepTest, APlanFileKeepsTheHost) {
  const Inputs inputs = load_inputs({.workload = host_bound_step(),
                                     .cluster = "a100x8",
                                     .data_dir = kFolder,
                                     .layout = parse_layout("dp=8")});
  const schedule::Plan plan{
      .program = inputs.program,
      .schedule = schedule::make_schedule(inputs.program, schedule::parse_policy("torch-ddp")),
      .summary = inputs.summary};
  schedule::Plan read = schedule::parse_plan("plan.json", schedule::plan_to_json(plan));
  for (const std::string cluster : {"", "h100x64"}) {
    const Machine machine =
        machine_of({.command = "predict", .cluster = cluster, .data_dir = kFolder}, read);
    search::Planner planner(read.program, machine.costs);
    EXPECT_EQ(Duration(planner.evaluate(read.schedule).step_ns), microseconds(600)) << cluster;
  }
}

}  // namespace
}  // namespace dovetail::predict
