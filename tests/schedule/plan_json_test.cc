// Plan files: what is written is read back equal; derived values must agree with the rest.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/plan_json.h"

#include "base/error.h"
#include "schedule/program_json.h"
#include "tests/support/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace dovetail::schedule {
namespace {

// Two gradients of 16 and 3 elements, in one bucket each; all choices differ between the buckets.
Plan pair() {
  Plan plan;
  plan.program = {
      .name = "pair",
      .world_size = 2,
      .tensors = {{TensorId{0}, "b.grad", TensorKind::Gradient, DType::F32, {4, 4}},
                  {TensorId{1}, "a.grad", TensorKind::Gradient, DType::F32, {3}}},
      .ops = {{OpId{0},
               "b.backward",
               Phase::Backward,
               DType::F32,
               TimedWork{{Duration(5000)}},
               {},
               {TensorId{0}}},
              {OpId{1},
               "a.backward",
               Phase::Backward,
               DType::F32,
               TimedWork{{Duration(5000)}},
               {},
               {TensorId{1}}}},
      .groups = {{GroupId{0}, "dp", {Rank{0}, Rank{1}}}},
      .reductions = {{TensorId{0}, GroupId{0}, ReduceOp::Average},
                     {TensorId{1}, GroupId{0}, ReduceOp::Average}},
  };
  plan.schedule.policy = "by-hand";
  plan.schedule.buckets.resize(2);
  Bucket& first = plan.schedule.buckets[0];
  first.id = BucketId{7};
  first.gradients = {TensorId{0}};
  first.collective = Collective::ReduceScatter;
  first.mode = BucketMode::Copy;
  first.pad_to = Bytes(512);
  first.align_to = Bytes(64);
  first.stream = CommStream{1};
  first.launch = LaunchAfterOp{OpId{1}};
  first.wait = WaitPoint::EndOfBackward;
  first.scope = WaitScope::WholeStream;
  Bucket& second = plan.schedule.buckets[1];
  second.id = BucketId{1};
  second.gradients = {TensorId{1}};
  second.stream = InlineStream{};
  second.launch = LaunchAfterBackward{};
  plan.summary = {
      .workload = "pair",
      .cluster = "a100x8",
      .predicted = Prediction{
          .step = Duration(12'500), .exposed = Duration(2'500), .lower_bound = Duration(10'000)}};
  return plan;
}

std::string message_of(std::string_view text) {
  try {
    static_cast<void>(parse_plan("plan.json", text));
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

// pair() as text with one place changed, and the message of the reader.
std::string plan_message_with(std::string_view place, std::string_view changed) {
  std::string text = plan_to_json(pair());
  const std::size_t at = text.find(place);
  if (at == std::string::npos) return "no such place: " + std::string(place);
  return message_of(text.replace(at, place.size(), changed));
}

TEST(PlanJsonTest, WhatIsWrittenIsReadBackEqual) {
  const Plan plan = pair();
  EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan);
}

TEST(PlanJsonTest, EveryChoiceRoundTrips) {
  Plan plan = pair();
  Bucket& bucket = plan.schedule.buckets.front();
  bucket.gradients = {TensorId{1}, TensorId{0}};  // the order within a bucket is kept
  bucket.collective = Collective::AllReduce;
  bucket.stream = CommStream{63};
  bucket.launch = LaunchBeforeOp{OpId{1}};
  EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan);
  bucket.launch = LaunchWhenReady{};
  EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan);
  plan.summary.predicted->lower_bound.reset();
  EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan);
  plan.summary.link = "loopback";
  EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan);
  plan.summary.predicted.reset();
  plan.schedule.buckets.clear();
  EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan);
}

TEST(PlanJsonTest, ABucketsNewChoicesRoundTrip) {
  Plan plan = pair();
  Bucket& sharded = plan.schedule.buckets.front();
  sharded.gradients = {{TensorId{1}, 1, 2}, {TensorId{0}, 0, 4}};
  sharded.launch = LaunchInBatch{3};
  sharded.wait = WaitPoint::BeforeNextBatch;
  sharded.replicas = GroupId{0};
  sharded.max_ctas = 8;
  sharded.closed_by = "reader";
  EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan);
}

TEST(PlanJsonTest, EveryDecisionAboutTheStepRoundTrips) {
  for (const ScaleAt scale :
       {ScaleAt::Collective, ScaleAt::BeforeCollective, ScaleAt::AfterCollective,
        ScaleAt::LossGradient, ScaleAt::Optimizer}) {
    Plan plan = pair();
    plan.schedule.scale = scale;
    EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan) << to_string(scale);
  }
  for (const SyncPoint sync :
       {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
    Plan plan = pair();
    plan.schedule.merge = {
        .micro_steps = 4, .op = ReduceOp::Sum, .sync = sync, .dtype = DType::F64};
    EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan) << to_string(sync);
  }
  Plan plan = pair();
  plan.schedule.parameters = ParameterSync::NextForward;
  plan.schedule.pipeline = {.kind = PipelineKind::Interleaved,
                            .alignment = LaunchAlignment::AcrossStages};
  EXPECT_EQ(parse_plan("plan.json", plan_to_json(plan)), plan);
}

TEST(PlanJsonTest, ASliceMustLieInItsTensor) {
  Plan plan = pair();
  plan.schedule.buckets.front().gradients = {{TensorId{0}, 4, 12}};
  std::string text = plan_to_json(plan);
  text.replace(text.find("\"first\": 4"), 10, "\"first\": 5");
  EXPECT_EQ(message_of(text),
            "plan.json: /buckets/0/gradients/0: elements 5 to 16 of a tensor of 16");
}

TEST(PlanJsonTest, ABucketTravelsByAReductionOnly) {
  EXPECT_EQ(plan_message_with("\"collective\": \"all-reduce\"", "\"collective\": \"all-gather\""),
            "plan.json: /buckets/1/collective: expected one of \"all-reduce\", "
            "\"reduce-scatter\", found \"all-gather\"");
}

TEST(PlanJsonTest, TheTextIsStable) {
  EXPECT_TRUE(matches_golden("schedule/pair.plan.json", plan_to_json(pair())));
  EXPECT_EQ(read_plan(std::string(DOVETAIL_SOURCE_DIR) + "/tests/golden/schedule/pair.plan.json"),
            pair());
}

TEST(PlanJsonTest, TheGapIsRelativeToTheLowerBound) {
  // (12.5 - 10) / 10 = 0.25.
  EXPECT_EQ(pair().summary.predicted->gap(), 0.25);
  EXPECT_EQ((Prediction{.step = Duration(5), .lower_bound = Duration(0)}).gap(), std::nullopt);
  EXPECT_EQ((Prediction{.step = Duration(5)}).gap(), std::nullopt);
}

TEST(PlanJsonTest, DerivedValuesMustAgree) {
  // b.grad has 16 elements of 4 bytes.
  EXPECT_EQ(plan_message_with("\"bytes\": 64", "\"bytes\": 60"),
            "plan.json: /buckets/0/bytes: the gradients of this bucket have 64, found 60");
  EXPECT_EQ(plan_message_with("\"elements\": 16", "\"elements\": 64"),
            "plan.json: /buckets/0/elements: the gradients of this bucket have 16, found 64");
  EXPECT_EQ(plan_message_with("\"gap_percent\": 25.0", "\"gap_percent\": 20.0"),
            "plan.json: /predicted/gap_percent: 100 (step_us - lower_bound_us) / lower_bound_us is "
            "25.0, found 20.0");
  EXPECT_EQ(
      plan_message_with("\"lower_bound_us\": 10.0,", ""),
      "plan.json: /predicted/gap_percent: unknown key; known keys: exposed_us, lower_bound_us, "
      "step_us");
}

TEST(PlanJsonTest, NamesMustBeInTheProgram) {
  EXPECT_EQ(plan_message_with("\"a.grad\"", "\"a.gard\""),
            "plan.json: /buckets/1/gradients/0: the program has no tensor \"a.gard\"; did you mean "
            "\"a.grad\"?");
  EXPECT_EQ(plan_message_with("\"after_op\": \"a.backward\"", "\"after_op\": \"c\""),
            "plan.json: /buckets/0/launch/after_op: the program has no op \"c\"");
  EXPECT_EQ(plan_message_with("\"group\": \"dp\"", "\"group\": \"tp\""),
            "plan.json: /buckets/0/group: the program has no process group \"tp\"; did you mean "
            "\"dp\"?");
}

TEST(PlanJsonTest, BucketsAreCheckedOneByOne) {
  EXPECT_EQ(plan_message_with("\"id\": 1", "\"id\": 7"),
            "plan.json: /buckets/1/id: another bucket has this id");
  EXPECT_EQ(plan_message_with("[\n    \"a.grad\"\n   ]", "[]"),
            "plan.json: /buckets/1/gradients: expected at least one gradient");
  EXPECT_EQ(plan_message_with("\"pad_to_bytes\": 512", "\"pad_to_bytes\": 0"),
            "plan.json: /buckets/0/pad_to_bytes: expected an integer from 1 to 1073741824, "
            "found 0");
  EXPECT_EQ(plan_message_with("\"align_to_bytes\": 64", "\"align_to_bytes\": 0"),
            "plan.json: /buckets/0/align_to_bytes: expected an integer from 1 to 1073741824, "
            "found 0");
  EXPECT_EQ(plan_message_with("\"comm1\"", "\"comm01\""),
            "plan.json: /buckets/0/stream: expected \"inline\" or \"comm0\" to \"comm63\", found "
            "\"comm01\"");
  EXPECT_EQ(plan_message_with("\"after-backward\"", "\"later\""),
            "plan.json: /buckets/1/launch: expected one of \"when-ready\", \"after-backward\", "
            "found \"later\"");
  EXPECT_EQ(plan_message_with("\"scope\": \"event\"", "\"scope\": \"event\", \"scopes\": 4"),
            "plan.json: /buckets/1/scopes: unknown key; did you mean \"scope\"?");
}

TEST(PlanJsonTest, AMistakeInTheProgramIsNamedByItsPlaceInThePlan) {
  EXPECT_EQ(plan_message_with("\"world_size\": 2", "\"world_size\": 0"),
            "plan.json: /program/world_size: expected an integer from 1 to 1048576, found 0");
  EXPECT_EQ(plan_message_with("\"world_size\": 2", "\"world_size\": 1"),
            "plan.json: /program: process group dp names rank 1 in a world of 1");
}

TEST(PlanJsonTest, AMisspeltOptionalKeyIsToldItsName) {
  EXPECT_EQ(plan_message_with("\"predicted\"", "\"predcted\""),
            "plan.json: /predcted: unknown key; did you mean \"predicted\"?");
}

TEST(PlanJsonTest, AProgramIsNoPlan) {
  EXPECT_EQ(message_of(program_to_json(pair().program)),
            "plan.json: /schema: expected \"dovetail.plan/1\", found \"dovetail.program/1\"");
}

}  // namespace
}  // namespace dovetail::schedule
