// How Programs, Schedules and commands look on a terminal; the expected texts are golden files.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/print.h"

#include "tests/support/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace dovetail::schedule {
namespace {

constexpr TensorId kWeight{0};
constexpr TensorId kOut{1};
constexpr TensorId kWeightGrad{2};
constexpr TensorId kBiasGrad{3};
constexpr TensorId kLongGrad{4};

Program sample() {
  return {
      .name = "mlp",
      .world_size = 2,
      .tensors = {{kWeight, "fc1.weight", TensorKind::Parameter, DType::F32, {256, 784}},
                  {kOut, "fc1.out", TensorKind::Activation, DType::F32, {64, 256}},
                  {kWeightGrad, "fc1.weight.grad", TensorKind::Gradient, DType::F32, {256, 784}},
                  {kBiasGrad, "fc1.bias.grad", TensorKind::Gradient, DType::F32, {256}},
                  {kLongGrad,
                   "transformer.h.11.attn.c_proj.weight.grad",
                   TensorKind::Gradient,
                   DType::F16,
                   {3}}},
      .ops = {{OpId{0},
               "fc1.forward",
               Phase::Forward,
               DType::F32,
               GemmWork{64, 256, 784},
               {kWeight},
               {kOut}},
              {OpId{1},
               "fc1.backward.weight",
               Phase::Backward,
               DType::F32,
               GemmWork{784, 256, 64, 2},
               {kOut},
               {kWeightGrad, kBiasGrad, kLongGrad}},
              {OpId{2},
               "noise",
               Phase::Backward,
               DType::F32,
               TimedWork{{Duration(12'300), Duration(14'000)}},
               {},
               {}},
              {OpId{3}, "clock", Phase::Backward, DType::F32, TimedWork{{Duration(700)}}, {}, {}},
              {OpId{4},
               "fc1.weight.update",
               Phase::Optimizer,
               DType::F32,
               MemoryWork{Bytes(2'408'448), Flop(401'408)},
               {kWeightGrad},
               {kWeight}}},
      .groups = {{GroupId{0}, "dp", {Rank{0}, Rank{1}}}},
      .reductions = {{kWeightGrad, GroupId{0}, ReduceOp::Average},
                     {kBiasGrad, GroupId{0}, ReduceOp::Average},
                     {kLongGrad, GroupId{0}, ReduceOp::Sum}},
  };
}

Schedule two_buckets() {
  Schedule schedule;
  schedule.policy = "by-hand";
  schedule.buckets.resize(2);
  Bucket& first = schedule.buckets[0];
  first.id = BucketId{0};
  first.gradients = {kBiasGrad, kWeightGrad};
  first.mode = BucketMode::Copy;
  first.pad_to = kib(4);
  first.launch = LaunchAfterOp{OpId{2}};
  first.wait = WaitPoint::EndOfBackward;
  first.scope = WaitScope::WholeStream;
  Bucket& second = schedule.buckets[1];
  second.id = BucketId{11};
  second.gradients = {kLongGrad};
  second.collective = Collective::ReduceScatter;
  second.stream = InlineStream{};
  second.launch = LaunchAfterBackward{};
  return schedule;
}

ScheduledProgram commands() {
  ScheduledProgram scheduled;
  scheduled.program = sample();
  scheduled.policy = "by-hand";
  scheduled.streams = {{StreamId{0}, "compute"}, {StreamId{1}, "comm0"}};
  scheduled.buckets = {{.bucket = BucketId{0},
                        .mode = BucketMode::Copy,
                        .payload = Bytes(803'840),
                        .size = Bytes(806'912),
                        .members = {{kBiasGrad, Bytes(0)}, {kWeightGrad, Bytes(1024)}}}};
  const BucketId bucket{0};
  scheduled.roles = {
      {.ranks = {Rank{0}, Rank{1}},
       .commands = {{CommandId{0}, StreamId{0}, RunOp{OpId{0}}},
                    {CommandId{1}, StreamId{0},
                     Copy{bucket, CopyDirection::Pack, {kBiasGrad, kWeightGrad}}},
                    {CommandId{2}, StreamId{0}, RecordEvent{EventId{0}}},
                    {CommandId{3}, StreamId{1}, WaitEvent{EventId{0}}},
                    {CommandId{4}, StreamId{1},
                     Communicate{bucket, Collective::AllReduce, ReduceOp::Average, GroupId{0}}},
                    {CommandId{10}, StreamId{0},
                     Copy{bucket, CopyDirection::Unpack, {kBiasGrad}}}}},
      {.ranks = {Rank{2}}, .commands = {{CommandId{11}, StreamId{0}, RunOp{OpId{1}}}}},
      {.ranks = {Rank{4}, Rank{6}}, .commands = {}}};
  return scheduled;
}

std::string program_text() {
  std::ostringstream out;
  print_program(out, sample());
  return out.str();
}
std::string schedule_text() {
  std::ostringstream out;
  print_schedule(out, sample(), two_buckets());
  return out.str();
}
std::string command_text() {
  std::ostringstream out;
  print_commands(out, commands());
  return out.str();
}

TEST(PrintTest, AProgramIsATableOfItsOps) {
  EXPECT_TRUE(matches_golden("schedule/print_program.txt", program_text()));
}

TEST(PrintTest, AScheduleIsATableOfItsBuckets) {
  EXPECT_TRUE(matches_golden("schedule/print_schedule.txt", schedule_text()));
}

TEST(PrintTest, CommandsAreListedPerRole) {
  EXPECT_TRUE(matches_golden("schedule/print_commands.txt", command_text()));
}

TEST(PrintTest, NoLineEndsInASpace) {
  for (const std::string& text : {program_text(), schedule_text(), command_text()}) {
    EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr(" \n")));
    EXPECT_THAT(text, ::testing::EndsWith("\n"));
  }
}

TEST(PrintTest, NamesStandInFull) {
  std::ostringstream out;
  Program program = sample();
  program.ops[1].writes = {kLongGrad};
  print_program(out, program);
  EXPECT_THAT(out.str(), ::testing::HasSubstr("writes transformer.h.11.attn.c_proj.weight.grad\n"));
}

TEST(PrintTest, LongListsShowTheirFirstNamesAndACount) {
  EXPECT_THAT(program_text(), ::testing::HasSubstr("writes fc1.weight.grad, fc1.bias.grad +1\n"));
}

TEST(PrintTest, EmptyValuesPrintTheirHeadlineOnly) {
  std::ostringstream out;
  ScheduledProgram scheduled;
  scheduled.program.name = "empty";
  scheduled.policy = "nothing";
  Schedule schedule;
  schedule.policy = "nothing";
  print_program(out, scheduled.program);
  print_schedule(out, scheduled.program, schedule);
  print_commands(out, scheduled);
  EXPECT_EQ(out.str(),
            "program empty  world 1\nschedule nothing\ncommands of empty  nothing\nstreams\n");
}

}  // namespace
}  // namespace dovetail::schedule
