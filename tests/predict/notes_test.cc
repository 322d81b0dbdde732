// What a prediction rests on is said alike of a workload that was just read and of a plan file.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policies/policies.h"
#include "predict/plan_machine.h"
#include "predict/prediction.h"
#include "schedule/plan_json.h"

namespace dovetail::predict {
namespace {

using ::testing::ContainerEq;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kData = DOVETAIL_SOURCE_DIR "/models";

// A plan as `plan` writes it, without what is predicted.
schedule::Plan plan_of(const Inputs& inputs, const std::string& policy) {
  return {.program = inputs.program,
          .schedule = schedule::make_schedule(inputs.program, schedule::parse_policy(policy)),
          .summary = inputs.summary};
}

struct Case {
  std::string workload;
  std::string cluster;  // "": the workload's own machine
  std::string policy;
};

class NotesTest : public ::testing::TestWithParam<Case> {};

TEST_P(NotesTest, APlanFileSaysWhatItsWorkloadSays) {
  const Case& one = GetParam();
  const Inputs inputs = load_inputs(
      {.workload = one.workload, .cluster = one.cluster, .data_dir = kData, .world = {}});
  const schedule::Plan plan = plan_of(inputs, one.policy);
  const schedule::Plan read = schedule::parse_plan("plan.json", schedule::plan_to_json(plan));
  EXPECT_EQ(read.summary, plan.summary);
  const Machine machine =
      machine_of({.command = "predict", .cluster = {}, .data_dir = kData}, read);
  const std::vector<std::string> fresh =
      notes_on(inputs.machine, plan.program, plan.summary, plan.schedule);
  EXPECT_THAT(notes_on(machine, read.program, read.summary, read.schedule), ContainerEq(fresh));
  EXPECT_EQ(machine.costs.machine, inputs.summary.cluster);
}

INSTANTIATE_TEST_SUITE_P(Pairs, NotesTest,
                         ::testing::Values(Case{"mlp-1000mbit", "", "torch-ddp"},
                                           Case{"mlp-1000mbit", "a100x2_nv12", "torch-ddp"},
                                           Case{"resnet50", "a100x16_ib", "torch-ddp"},
                                           Case{"resnet50", "a100x8", "sharded"}));

// The plan of a step that was measured on processors, predicted with the links of GPUs.
TEST(PredictTest, APlanOnAnotherMachineSaysThatItIsOfTwo) {
  const Inputs own =
      load_inputs({.workload = "mlp-1000mbit", .cluster = {}, .data_dir = kData, .world = {}});
  const schedule::Plan plan = plan_of(own, "torch-ddp");
  const PlanMachineOptions elsewhere{
      .command = "predict", .cluster = "a100x2_nv12", .data_dir = kData};
  const Prediction there = predict_plan(plan, machine_of(elsewhere, plan), "plan.json");
  const auto stretched = HasSubstr("compute is stretched");
  const auto two = HasSubstr("collectives are those of a100x2_nv12: two machines");
  EXPECT_THAT(there.notes, Contains(stretched));
  EXPECT_THAT(there.notes, Contains(two));
  const Prediction here = predict_plan(plan, own.machine, "plan.json");
  EXPECT_THAT(here.notes, Contains(stretched));
  EXPECT_THAT(here.notes, Not(Contains(HasSubstr("two machines"))));
}

}  // namespace
}  // namespace dovetail::predict
