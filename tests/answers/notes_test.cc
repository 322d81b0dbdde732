// What a prediction rests on is said alike of a workload that was just read and of a plan file.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "answers/plan_machine.h"
#include "answers/prediction.h"
#include "base/error.h"
#include "base/file.h"
#include "models/networks/text.h"
#include "schedule/plan_json.h"
#include "schedule/policies/policies.h"
#include "tests/support/programs.h"

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
  schedule::Plan read = schedule::parse_plan("plan.json", schedule::plan_to_json(plan));
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
  schedule::Plan plan = plan_of(own, "torch-ddp");
  const PlanMachineOptions elsewhere{
      .command = "predict", .cluster = "a100x2_nv12", .data_dir = kData};
  Machine found = machine_of(elsewhere, plan);
  const Prediction there = predict_plan(plan, std::move(found), "plan.json");
  const auto stretched = HasSubstr("compute is stretched");
  const auto two = HasSubstr("collectives are those of a100x2_nv12: two machines");
  EXPECT_THAT(there.notes, Not(Contains(stretched)));  // that is of the machine that was measured
  EXPECT_THAT(there.notes, Contains(two));
  const Prediction here = predict_plan(plan, own.machine, "plan.json");
  EXPECT_THAT(here.notes, Contains(stretched));
  EXPECT_THAT(here.notes, Not(Contains(HasSubstr("two machines"))));
}

// A plan for a machine that nobody has is predicted on it again, unless another machine is named.
TEST(PredictTest, APlanRemembersWhatWasAskedOfItsMachine) {
  const auto step_of = [](const InputOptions& options) {
    const Inputs inputs = load_inputs(options);
    const schedule::Plan plan = plan_of(inputs, "torch-ddp");
    return std::pair(plan, predict_plan(plan, inputs.machine, "").step());
  };
  InputOptions options{.workload = "resnet50", .cluster = "a100x8", .data_dir = kData, .world = {}};
  const auto [usual_plan, usual] = step_of(options);
  options.what_if = models::parse_what_if("compute=1.5x,link=0.1x");
  const auto [plan, step] = step_of(options);
  EXPECT_NE(step, usual);

  schedule::Plan read = schedule::parse_plan("plan.json", schedule::plan_to_json(plan));
  PlanMachineOptions machine{.command = "predict", .cluster = {}, .data_dir = kData};
  Machine found = machine_of(machine, read);
  const Prediction again = predict_plan(read, std::move(found), "plan.json");
  EXPECT_EQ(again.step(), step);
  EXPECT_THAT(again.notes, Contains("what if: link=0.1x,compute=1.5x"));

  machine.cluster = "a100x8";
  found = machine_of(machine, read);
  const Prediction there = predict_plan(read, std::move(found), "plan.json");
  EXPECT_EQ(there.step(), usual);
  EXPECT_THAT(there.notes, Not(Contains(HasSubstr("what if"))));
}

TEST(PredictTest, WhatAPlanAsksForIsReadLikeAnyInput) {
  schedule::Plan plan;
  plan.summary.what_if = "lnk=2x";
  EXPECT_THAT(
      [&] { machine_of({.command = "predict", .cluster = {}, .data_dir = kData}, plan); },
      ::testing::ThrowsMessage<InputError>(HasSubstr("the plan's what_if: --what-if: expected")));
}

// Another capture of the model, on the plan's machine: with what was asked of it, and the plan's ranks.
TEST(PredictTest, AnotherWorkloadRunsOnThePlansMachine) {
  const auto step_of = [](const PlanAndMachine& found) {
    return predict_plan(found.plan, found.machine, "").step();
  };
  InputOptions options{.workload = "resnet18", .cluster = "a100x8", .data_dir = kData, .world = {}};
  options.what_if = models::parse_what_if("link=0.1x,world=16");
  const Inputs inputs = load_inputs(options);
  const std::string path = ::testing::TempDir() + "/asked_plan.json";
  write_file(path, schedule::plan_to_json(plan_of(inputs, "one-bucket")));
  InputOptions wanted{.workload = "resnet18", .cluster = {}, .data_dir = kData, .world = {}};
  const PlanAndMachine asked = plan_on_workload(path, wanted);
  EXPECT_EQ(asked.plan.program.world_size, 16);
  EXPECT_EQ(asked.plan.summary.what_if, "link=0.1x");
  wanted.cluster = "a100x8";
  EXPECT_GT(step_of(asked), step_of(plan_on_workload(path, wanted)));
  wanted.what_if = models::parse_what_if("world=8");
  EXPECT_THAT([&] { plan_on_workload(path, wanted); },
              ::testing::ThrowsMessage<InputError>(HasSubstr("a plan is of its ranks")));
}

TEST(PredictTest, AnotherGpuKeepsTheLinks) {
  InputOptions options{
      .workload = "bert_base", .cluster = "a100x8", .data_dir = kData, .world = {}};
  options.what_if = models::parse_what_if("gpu=h100,world=64");
  const Inputs inputs = load_inputs(options);
  EXPECT_EQ(inputs.program.world_size, 64);
  const models::Cluster a100 = load_cluster("a100x8", kData);
  const models::Cluster h100 = load_cluster("h100", kData);
  EXPECT_EQ(inputs.machine.cluster->compute, h100.compute);
  EXPECT_EQ(inputs.machine.cluster->topology, a100.topology);

  options.workload = "mlp-1000mbit";
  options.what_if = models::parse_what_if("gpu=h100");
  options.cluster = "a100x2_nv12";
  EXPECT_THAT([&] { load_inputs(options); },
              ::testing::ThrowsMessage<InputError>(HasSubstr("is a measured time")));
}

TEST(PredictTest, AJobGrowsInItsDataParallelism) {
  const jobs::Job job = jobs::parse_job("llama3_8b:tp=2,dp_shard=4,gbs=64");
  const jobs::Job grown = on_world(job, models::parse_what_if("world=32"));
  EXPECT_EQ(grown.layout.dp_shard, 16);
  EXPECT_EQ(grown.layout.tp, 2);
  EXPECT_EQ(grown.batch.global, 64);
  EXPECT_THAT([&] { on_world(job, models::parse_what_if("world=3")); },
              ::testing::ThrowsMessage<InputError>(HasSubstr("a multiple of 2")));
}

// The shipped step of two ranks, whose backward is the later rank's at every gradient; a table for 16 ranks is not
// measured, but the cluster has links.
TEST(PredictTest, AMeasuredStepOnOtherRanksKeepsItsComputeAndSaysSo) {
  const auto load = [](const std::string& cluster, const std::string& layout) {
    InputOptions options{
        .workload = "mlp-1000mbit", .cluster = cluster, .data_dir = kData, .world = {}};
    if (!layout.empty()) options.layout = parse_layout(layout);
    return load_inputs(options);
  };
  const auto compute = [](const Inputs& inputs) {
    Duration sum{};
    for (const schedule::Op& op : inputs.program.ops) sum += inputs.machine.costs.op(op, Rank{0});
    return sum;
  };
  const Inputs two = load("a100x2_nv12", "");
  const Inputs laid = load("h100x64", "dp=16");
  EXPECT_EQ(laid.program.world_size, 16);
  EXPECT_GE(compute(laid), compute(two));
  EXPECT_LT(compute(laid), compute(two) + compute(two) / 100);
  const schedule::Plan plan = plan_of(laid, "torch-ddp");
  const std::vector<std::string> notes =
      notes_on(laid.machine, plan.program, plan.summary, plan.schedule);
  EXPECT_THAT(notes, Contains("laid out as dp=16, measured over 2 ranks on the machine of "
                              "mlp-1000mbit: each rank computes as measured, collectives are the "
                              "cluster's"));
  EXPECT_THAT(notes, Contains(HasSubstr("all-reduce over 16 ranks on 2 nodes: modelled")));
  EXPECT_THAT(notes, Not(Contains(HasSubstr("compute is stretched"))));
  // As many ranks as were measured: nothing changes, and the machine of the profile will do.
  EXPECT_EQ(load("", "dp=2").program, load("", "").program);
  EXPECT_THROW(load("", "dp=16"), InputError);
}

TEST(PredictTest, ShardsAndReplicasTravelOverTheirOwnGroups) {
  InputOptions options{.workload = "mlp", .cluster = "h100x64", .data_dir = kData, .world = {}};
  options.layout = parse_layout("dp_shard=8,dp=2");
  const Inputs inputs = load_inputs(options);
  const schedule::Plan plan = plan_of(inputs, "fsdp");
  const Prediction found = predict_plan(plan, inputs.machine, "plan.json");  // legal
  EXPECT_EQ(found.plan.program.world_size, 16);
  ASSERT_TRUE(plan.schedule.buckets.front().replicas.has_value());
  EXPECT_EQ(plan.program.group(*plan.schedule.buckets.front().replicas).name, "hsdp");
}

// Of a model, on devices that hold its parameters once or twice.
TEST(PredictTest, APlanThatDoesNotFitSaysWhatItKeeps) {
  Inputs inputs =
      load_inputs({.workload = "mlp", .cluster = "a100x8", .data_dir = kData, .world = {}});
  const auto note_of = [&](const std::string& policy) {
    const schedule::Plan plan = plan_of(inputs, policy);
    for (const std::string& note :
         notes_on(inputs.machine, plan.program, plan.summary, plan.schedule)) {
      if (note.starts_with("this plan does not fit")) return note;
    }
    return std::string();
  };
  Bytes parameters;
  for (const schedule::Tensor& tensor : inputs.program.tensors) {
    if (tensor.kind == schedule::TensorKind::Parameter) parameters += tensor.bytes();
  }
  inputs.machine.cluster->compute->capacity = 2 * parameters;
  EXPECT_EQ(note_of("threshold:cap=8MiB,mode=view"), "");
  EXPECT_THAT(note_of("threshold:cap=8MiB,mode=copy"),
              HasSubstr("copies in buckets " + to_string(parameters)));
  inputs.machine.cluster->compute->capacity = parameters;
  EXPECT_THAT(note_of("threshold:cap=8MiB,mode=view"),
              HasSubstr("a rank keeps " + to_string(2 * parameters)));
  // Eight ranks keep an eighth of both, and what is gathered at a time.
  EXPECT_EQ(note_of("fsdp"), "");
}

// Two layers whose ops and updates cost the host 20 us each and run for 1 us: a step of 120 us, in which the
// compute stream is busy for 6 us.
TEST(PredictTest, AJobThatIsBoundByItsHostSaysSoFirst) {
  using testing::us;
  const schedule::Program program =
      testing::chain(std::vector<testing::Layer>(2, {us(1), us(1), Bytes(400), us(1)}));
  testing::SimpleMachine simple{.collective = testing::line(us(1), 0)};
  const auto sentence_of = [&] {
    const models::Costs costs = testing::costs_of(simple, program);
    const schedule::ScheduledProgram plan = lower_and_verify(
        program, schedule::make_schedule(program, schedule::parse_policy("per-tensor")), "plan");
    const std::optional<HostBound> bound = host_bound(plan, costs, steady_state(plan, costs));
    return bound ? to_string(*bound) : "";
  };
  EXPECT_EQ(sentence_of(), "");
  simple.host = {.kind = models::HostModel::Kind::Async, .run_op = us(20)};
  EXPECT_EQ(
      sentence_of(),
      "host-bound: no other bucket size will help; the device waits 0.114 ms of 0.120 ms for the "
      "host");
  // A network that would save more than a fiftieth is a reason to choose buckets.
  simple.collective = testing::line(us(200), 0);
  EXPECT_EQ(sentence_of(), "");
}

}  // namespace
}  // namespace dovetail::predict
