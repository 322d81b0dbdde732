// Collectives that the Program itself asks for, placed by the Schedule: when they run, what makes a
// placement illegal or impossible, and that all machines agree.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "schedule/lower/lower.h"
#include "schedule/plan_json.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"
#include "sim/simulate.h"
#include "tests/sim/agreement.h"
#include "tests/support/errors.h"
#include "tests/support/programs.h"
#include "tests/support/random_language.h"
#include "tests/support/tensor_parallel.h"
#include "traces/metrics.h"

namespace dovetail::sim {
namespace {

using schedule::OpPlacement;
using schedule::Program;
using schedule::Schedule;
using schedule::ScheduledProgram;
using testing::tensor_parallel;
using testing::us;

Schedule with_policy(const Program& program, const std::string& policy) {
  return schedule::make_schedule(program, schedule::parse_policy(policy));
}

OpId op_of(const Program& program, const std::string& name) {
  return std::ranges::find(program.ops, name, &schedule::Op::name)->id;
}

double step_us(const Program& program, const Schedule& schedule) {
  const ScheduledProgram plan = schedule::lower(program, schedule).program;
  EXPECT_TRUE(schedule::verify(program, plan).empty());
  const models::Costs costs = testing::costs_of({.collective = testing::line(us(8), 0)}, program);
  return to_us(traces::step_times(simulate(plan, costs)).front());
}

// Ops of 10, collectives of 8. Forward: input 10, l0 20, sum 28, l1 38, sum 46; loss 56. Backward: l1 66,
// its weight 76, its sum 84, l0 94, its weight 104, its sum 112; updates 122, 132.
TEST(PlacedCollectivesTest, WhereTheyStandTheyAddToTheComputeStream) {
  const Program program = tensor_parallel();
  EXPECT_EQ(step_us(program, with_policy(program, "per-tensor")), 132);
}

// The sum of l1 needs l1.backward only: 66..74, beside l1.weight, which ends at 76. l0.backward 86, the
// sum 86..94 beside l0.weight, 96; updates 106, 116 (the last gradient is reduced at 104). Those of
// forward have nothing to run beside.
TEST(PlacedCollectivesTest, PlacedTheyRunBesideWhatDoesNotNeedThem) {
  const Program program = tensor_parallel();
  const Schedule schedule = with_policy(program, "per-tensor:collectives=async");
  ASSERT_EQ(schedule.collectives.size(), 4U);
  EXPECT_EQ(step_us(program, schedule), 116);
}

// One alone: the sum of l0 ends the step as before, that of l1 is hidden.
TEST(PlacedCollectivesTest, EachIsPlacedByItself) {
  const Program program = tensor_parallel();
  Schedule schedule = with_policy(program, "per-tensor");
  OpPlacement placement;
  placement.op = op_of(program, "l1.backward.sum");
  placement.stream = schedule::CommStream{1};
  schedule.collectives = {placement};
  EXPECT_EQ(step_us(program, schedule), 124);
  // Launched where it stood, behind l1.weight: 76..84, and l0.backward waits for it.
  schedule.collectives[0].launch = schedule::LaunchAfterOp{op_of(program, "l1.weight")};
  EXPECT_EQ(step_us(program, schedule), 132);
}

// Its program starts the sum of l0 itself, behind l0.weight: 104..112 beside the update of l1, 104..114, then that of l0. That of l1
// stands in front of its reader.
TEST(PlacedCollectivesTest, WhatTheProgramStartsRunsFromWhereItStands) {
  Program program = tensor_parallel();
  for (const char* name : {"l1.backward.sum", "l0.backward.sum"}) {
    schedule::Op& op = program.ops[static_cast<std::size_t>(op_of(program, name).value)];
    std::get<schedule::CollectiveWork>(op.work).asynchronous = true;
  }
  const Schedule schedule = with_policy(program, "per-tensor");
  ASSERT_EQ(schedule.collectives.size(), 2U);
  EXPECT_EQ(schedule.collectives[0].launch,
            schedule::LaunchPoint(schedule::LaunchAfterOp{op_of(program, "l1.weight")}));
  EXPECT_EQ(step_us(program, schedule), 124);
  EXPECT_EQ(step_us(program, with_policy(program, "per-tensor:collectives=async")), 116);
}

// How many waits a plan has, and how many of them the verifier misses when they are left out.
std::pair<int, int> waits_of(const Program& program, const Schedule& schedule) {
  const ScheduledProgram legal = schedule::lower(program, schedule).program;
  EXPECT_TRUE(schedule::verify(program, legal).empty());
  std::pair<int, int> found(0, 0);
  for (std::size_t i = 0; i < legal.roles[0].commands.size(); ++i) {
    const schedule::Command& command = legal.roles[0].commands[i];
    if (!std::holds_alternative<schedule::WaitEvent>(command.action)) continue;
    ScheduledProgram broken = legal;
    auto& commands = broken.roles[0].commands;
    commands.erase(commands.begin() + static_cast<std::ptrdiff_t>(i));
    ++found.first;
    if (!schedule::verify(program, broken).empty()) ++found.second;
  }
  return found;
}

// Two waits per collective, 4 of the program and 2 of gradients. The last one of the step is not needed:
// on its stream the next step's first sum comes behind it, and that is waited for.
TEST(PlacedCollectivesTest, WithoutTheirWaitTheReaderRaces) {
  const Program program = tensor_parallel();
  EXPECT_EQ(waits_of(program, with_policy(program, "per-tensor:collectives=async")),
            std::pair(12, 11));
}

// Alone on its stream it is waited for at the end: the next step overwrites what it sums.
TEST(PlacedCollectivesTest, WithoutTheLastWaitTheNextStepRaces) {
  const Program program = tensor_parallel();
  Schedule schedule = with_policy(program, "per-tensor");
  OpPlacement placement;
  placement.op = op_of(program, "l0.backward.sum");
  placement.stream = schedule::CommStream{1};
  schedule.collectives = {placement};
  EXPECT_EQ(waits_of(program, schedule), std::pair(6, 6));
}

TEST(PlacedCollectivesTest, WhatIsNoPlacementIsRefusedInWords) {
  const Program program = tensor_parallel();
  const auto refusal = [&](auto change) {
    Schedule schedule = with_policy(program, "per-tensor");
    OpPlacement placement;
    placement.op = op_of(program, "l1.backward.sum");
    schedule.collectives = {placement};
    change(schedule);
    return testing::error_of([&] { schedule::lower(program, schedule); });
  };
  const std::string start = "schedule per-tensor: collective l1.backward.sum";
  EXPECT_EQ(
      refusal([&](Schedule& s) { s.collectives[0].op = op_of(program, "l1.weight"); }),
      "schedule per-tensor: collective l1.weight: the program has no such op that communicates");
  EXPECT_EQ(refusal([](Schedule& s) { s.collectives.push_back(s.collectives[0]); }),
            start + " is placed twice");
  EXPECT_EQ(refusal([](Schedule& s) { s.collectives[0].launch = schedule::LaunchAfterBackward{}; }),
            start + ": it cannot be launched after backward");
  EXPECT_EQ(refusal([](Schedule& s) { s.collectives[0].launch = schedule::LaunchInBatch{1}; }),
            start + ": it cannot be launched in a batch");
  EXPECT_EQ(
      refusal([](Schedule& s) { s.collectives[0].wait = schedule::WaitPoint::EndOfBackward; }),
      start + ": an op is waited for before the first use of what it brings");
}

TEST(PlacedCollectivesTest, APlanKeepsThem) {
  const Program program = tensor_parallel();
  schedule::Plan plan;
  plan.program = program;
  plan.schedule = with_policy(program, "per-tensor:collectives=async");
  plan.schedule.collectives[1].launch = schedule::LaunchAfterOp{op_of(program, "l1.forward")};
  plan.schedule.collectives[2].scope = schedule::WaitScope::WholeStream;
  plan.schedule.collectives[3].max_ctas = 4;
  const std::string text = schedule::plan_to_json(plan);
  EXPECT_EQ(schedule::parse_plan("plan.json", text).schedule, plan.schedule);
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return testing::error_of([&] { schedule::parse_plan("plan.json", changed); });
  };
  EXPECT_EQ(refusal("\"op\": \"l0.forward.sum\"", "\"op\": \"l0.forward\""),
            "plan.json: /collectives/0/op: this op does not communicate");
  EXPECT_EQ(refusal("\"op\": \"l0.forward.sum\"", "\"op\": \"l1.forward.sum\""),
            "plan.json: /collectives/1/op: it is placed already");
}

// Streams, launches, scopes and micro-steps at random beside random buckets: what lower accepts is legal
// and all simulators give every span the same times.
TEST(PlacedCollectivesTest, RandomPlacementsAreLegalAndPlayedAlike) {
  int early = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Program program =
        tensor_parallel({.layers = static_cast<std::int32_t>(random.between(1, 4))});
    Schedule schedule = testing::random_schedule(random, program, 3);
    schedule.merge.micro_steps = static_cast<std::int32_t>(random.between(1, 2));
    testing::place_collectives(random, program, schedule);
    const ScheduledProgram plan = schedule::lower(program, schedule).program;
    EXPECT_TRUE(schedule::verify(program, plan, schedule.merge).empty());
    early += static_cast<int>(schedule.collectives.size());
    testing::SimpleMachine machine = testing::random_machine(random);
    if (random.between(0, 1) == 0) testing::contend(random, machine);
    expect_reference(plan, testing::costs_of(machine, plan.program), 2);
  }
  EXPECT_GT(early, 60);
}

}  // namespace
}  // namespace dovetail::sim
